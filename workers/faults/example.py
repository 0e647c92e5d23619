"""What the kit drives unless it is given something else: one action of each effect class, each able to be undone.

The world they act upon is a folder beside the kit's log. It does what careful services do: the till does one key once,
and the post office can be asked whether a letter is there.
"""

from pathlib import Path
from typing import Annotated, Final
from uuid import NAMESPACE_OID, uuid5

from pydantic import BaseModel

from workers import Context, ExecutionPlan, PlanContext, Referable, action, planner, step
from workers.faults import log

PLANNER: Final = "faults.order"


class Order(BaseModel):
    """What a run is about: the name of an order that no other run has."""

    order: str


class Priced(BaseModel):
    """An order and what it costs."""

    order: str
    cents: int


class Charge(BaseModel):
    """What is taken from whom; cents usually comes from the price."""

    order: str
    cents: Annotated[int, Referable]


class Done(BaseModel):
    """Where it can be found."""

    where: str


@action("faults.price", effect="pure")
def price(params: Order, ctx: Context) -> Priced:
    """Say what an order costs."""
    ctx.check()
    return Priced(order=params.order, cents=100 + len(params.order))


@action("faults.charge", effect="keyed")
def charge(params: Charge, ctx: Context) -> Done:
    """Take the money, once for each key."""
    (_place("till") / ctx.idempotency_key).write_text(f"{params.order} {params.cents}", encoding="utf-8")
    return Done(where=ctx.idempotency_key)


@charge.compensation
def refund(_: Charge, done: Done | None, ctx: Context) -> None:
    """Give it back, if it was taken."""
    _take_away("till", done.where if done else ctx.idempotency_key.removesuffix(":undo"))


@action("faults.send", effect="once")
def send(params: Order, ctx: Context) -> Done:
    """Post a letter; the post office knows no keys."""
    name = f"{ctx.run_id}.{ctx.step_id}"
    with (_place("post") / name).open("a", encoding="utf-8") as letters:  # one more, whatever is there already
        letters.write(f"{params.order}\n")
    return Done(where=name)


@send.probe
def find_letter(_: Order, ctx: Context) -> Done | None:
    """Ask the post office."""
    name = f"{ctx.run_id}.{ctx.step_id}"
    return Done(where=name) if (_place("post") / name).exists() else None


@send.compensation
def recall_letter(_: Order, __: Done | None, ctx: Context) -> None:
    """Fetch back whatever is there."""
    _take_away("post", f"{ctx.run_id}.{ctx.step_id}")


@planner(PLANNER)
def order(given: Order, ctx: PlanContext) -> ExecutionPlan:
    """Price an order; then note, book, charge and write to the customer, all at once; then look once more."""
    account = str(uuid5(NAMESPACE_OID, given.order))
    return ctx.plan(
        step("faults.price", id="price", order=given.order),
        step("create_file", id="note", needs=["price"], path="note.txt", content=given.order),
        step("mutate_record", id="book", needs=["price"], entity_id=account, changes={"order": given.order}),
        step("faults.charge", id="charge", needs=["price"], order=given.order, cents=_cents()),
        step("faults.send", id="send", needs=["price"], order=given.order),
        step("faults.price", id="look", needs=["note", "book", "charge", "send"], order=given.order),
    )


def _cents() -> dict[str, str]:
    return {"$result": "price", "path": "/cents"}


# ---- the world


def _place(name: str) -> Path:
    place = log.folder() / name
    place.mkdir(exist_ok=True)
    return place


def _take_away(where: str, name: str) -> None:
    (_place(where) / name).unlink(missing_ok=True)
