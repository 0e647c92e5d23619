"""What the shop can do, besides the built-in create_file and mutate_record."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from examples.orders import carrier, shop
from workers import Context, PermanentError, Referable, action


class Model(BaseModel):
    """Strict, like everything that comes from a plan."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class CheckStock(Model):
    """How many pieces of what."""

    sku: str
    quantity: int


class InStock(Model):
    """weight_g: of all the pieces together, packed."""

    sku: str
    left: int
    weight_g: int


@action("orders.check_stock", effect="pure", timeout_s=5)
def check_stock(params: CheckStock, ctx: Context) -> InStock:
    """See whether the shelf holds enough of a product."""
    product = shop.products().get(params.sku)
    if product is None or product.stock < params.quantity:
        raise PermanentError(f"not enough of {params.sku} in stock")
    left = product.stock - params.quantity
    ctx.log.info("stock.checked", sku=params.sku, left=left)
    return InStock(sku=params.sku, left=left, weight_g=params.quantity * product.weight_g)


class BookParcel(Model):
    """One parcel for one line of an order. weight_g usually comes from the stock check."""

    order_id: str
    sku: str
    weight_g: Annotated[int, Referable]


class Booked(Model):
    """What the customer can follow the parcel with."""

    tracking: str


@action("carrier.book", effect="keyed", timeout_s=10)
def book(params: BookParcel, ctx: Context) -> Booked:
    """Book a parcel with the carrier, who answers a repeated key with the first booking."""
    ctx.check()
    tracking = carrier.book(ctx.idempotency_key, ctx.attempt, params.order_id, params.sku, params.weight_g)
    return Booked(tracking=tracking)
