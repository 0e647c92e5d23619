"""The shop's books, read from data/ and checked."""

from functools import cache
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

DATA = Path(__file__).with_name("data")
Cents = Annotated[int, Field(ge=0)]
Row = TypeVar("Row", bound=BaseModel)


class Record(BaseModel):
    """A row of the books."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Product(Record):
    """What is sold. weight_g: packed; stock: pieces on the shelf."""

    sku: str
    name: str
    unit_cents: Cents
    weight_g: int
    stock: int


class Customer(Record):
    """Who buys, on a balance paid in advance. account: the record that the charges are posted to."""

    id: str
    name: str
    city: str
    account: str
    balance_cents: Cents


class OrderedItem(Record):
    """A line of an order as the customer wrote it."""

    sku: str
    quantity: Annotated[int, Field(ge=1)]


class PlacedOrder(Record):
    """An order as it came in."""

    id: str
    customer: str
    lines: list[OrderedItem]


class Line(Record):
    """A line with its price."""

    sku: str
    name: str
    quantity: int
    unit_cents: Cents

    @property
    def cents(self) -> int:
        """Price of the whole line."""
        return self.quantity * self.unit_cents


class Order(Record):
    """Everything the planner is to know about one order: the context of its run."""

    id: str
    customer: str
    city: str
    account: str
    lines: list[Line]

    @property
    def cents(self) -> int:
        """What the customer pays."""
        return sum(line.cents for line in self.lines)


class Orders(Record):
    """Several of them: the context of the run that prints their invoices."""

    orders: list[Order]


@cache
def products() -> dict[str, Product]:
    """The catalogue, by sku."""
    return {product.sku: product for product in _read("products", Product)}


@cache
def customers() -> dict[str, Customer]:
    """The customers, by id."""
    return {customer.id: customer for customer in _read("customers", Customer)}


def orders() -> list[Order]:
    """The orders that came in, with prices and addresses filled in."""
    return [_complete(placed) for placed in _read("orders", PlacedOrder)]


def _complete(placed: PlacedOrder) -> Order:
    customer = customers()[placed.customer]
    lines = [
        Line(sku=item.sku, name=product.name, quantity=item.quantity, unit_cents=product.unit_cents)
        for item in placed.lines
        for product in [products()[item.sku]]
    ]
    return Order(id=placed.id, customer=customer.name, city=customer.city, account=customer.account, lines=lines)


def _read(name: str, model: type[Row]) -> list[Row]:
    return TypeAdapter(list[model]).validate_json((DATA / f"{name}.json").read_bytes())  # type: ignore[valid-type]


def money(cents: int) -> str:
    """`1,234.50`"""
    return f"{cents / 100:,.2f}"
