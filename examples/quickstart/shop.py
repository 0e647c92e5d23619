"""A shop in one file: what workers can do, how it is taken back, and how an order becomes a plan."""

from pydantic import BaseModel, Field

from workers import Context, ExecutionPlan, NoEffect, PermanentError, PlanContext, action, planner, step


class Charge(BaseModel):
    card: str
    cents: int = Field(gt=0)


class Charged(BaseModel):
    receipt: str


class Declined(PermanentError, NoEffect):
    """The bank said no: nothing happened, and trying again is no use."""


@action("shop.charge", effect="keyed")
def charge(params: Charge, ctx: Context) -> Charged:
    """Take money from a card."""
    # Here you would call your bank. It does one key once, however often a step is tried.
    if params.cents > 100_000:
        raise Declined("over the card's limit")
    ctx.log.info("shop.charged", card=params.card[-4:], cents=params.cents)
    return Charged(receipt=ctx.idempotency_key)


@charge.compensation
def refund(params: Charge, done: Charged | None, ctx: Context) -> None:
    """Give it back, for the run cannot succeed. Without a result nobody knows whether it was taken: ask the bank."""
    ctx.log.info("shop.refunded", card=params.card[-4:], receipt=done.receipt if done else None)


class Order(BaseModel):
    card: str
    prices: list[int]


@planner("shop.checkout")
def checkout(order: Order, ctx: PlanContext) -> ExecutionPlan:
    """Charge item by item; a step waits for the one before it unless it says otherwise."""
    return ctx.plan(*(step("shop.charge", card=order.card, cents=cents) for cents in order.prices))
