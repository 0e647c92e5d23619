"""A shop in one file: what workers can do, and how an order becomes a plan."""

from pydantic import BaseModel, Field

from workers import Context, ExecutionPlan, PlanContext, action, planner, step


class Charge(BaseModel):
    card: str
    cents: int = Field(gt=0)


class Charged(BaseModel):
    receipt: str


@action("shop.charge", effect="keyed")
def charge(params: Charge, ctx: Context) -> Charged:
    """Take money from a card."""
    # Here you would call your bank. It does one key once, however often a step is tried.
    ctx.log.info("shop.charged", card=params.card[-4:], cents=params.cents)
    return Charged(receipt=ctx.idempotency_key)


class Order(BaseModel):
    card: str
    prices: list[int]


@planner("shop.checkout")
def checkout(order: Order, ctx: PlanContext) -> ExecutionPlan:
    """Charge every item by itself, side by side."""
    return ctx.plan(*(step("shop.charge", needs=[], card=order.card, cents=cents) for cents in order.prices))
