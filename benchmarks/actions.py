"""Our side's work: as little as Celery's."""

from pydantic import BaseModel

from benchmarks import tally
from workers import Context, action


class Nothing(BaseModel):
    """No params."""


@action("bench.nothing", effect="pure")
def nothing(params: Nothing, ctx: Context) -> None:  # noqa: ARG001
    """Do nothing."""
    tally.add()
