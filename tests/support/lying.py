"""An action whose probe does not look, and an audit that always complains. The fault kit must tell."""

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from workers import Context, action


class Letter(BaseModel):
    to: str


class Sent(BaseModel):
    to: str


@action("test.lie", effect="once")
def send(params: Letter, ctx: Context) -> Sent:
    return Sent(to=params.to)


@send.probe
def find(params: Letter, ctx: Context) -> Sent | None:
    return None


@action("test.refuse", effect="pure", attempts=1)
def refuse(params: Letter, ctx: Context) -> Sent:
    raise RuntimeError("nobody lives there")


def complaints(run_ids: Sequence[str]) -> Iterator[str]:
    yield f"{len(run_ids)} runs"
