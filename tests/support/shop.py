"""A shop with a database of its own, which SHOP_URL names: its sales are transactional, and not in the ledger."""

import os
from functools import cache
from typing import Any

from sqlalchemy import Column, Connection, Engine, Integer, MetaData, String, Table, create_engine, delete, make_url

from tests.support.business import Note, Value, hold, log_effect
from workers import Context, action

metadata = MetaData()
sales = Table(
    "sales",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("step_id", String(64), nullable=False),
    Column("what", String(64), nullable=False),
)


@cache
def engine_for(url: str) -> Engine:
    """The shop's own connections, made as its owner would."""
    parsed = make_url(url)
    driver = "postgresql+psycopg" if parsed.drivername.startswith("postgres") else parsed.drivername
    return create_engine(parsed.set(drivername=driver))


def sell_in(connection: Connection, step_id: str, what: str) -> None:
    connection.execute(sales.insert().values(step_id=step_id, what=what))


@action("shop.sell", effect="transactional")
def sell(params: Note, ctx: Context) -> Value:
    """Sell; linger_s: what the first attempt does after its commit."""
    result = Value(value=params.value)
    with engine_for(os.environ["SHOP_URL"]).begin() as connection:
        sell_in(connection, ctx.step_id, params.value)
        ctx.effect(connection, result)
    log_effect(ctx, "noted", params.value)
    hold(params.linger_s if ctx.attempt == 1 else 0, ctx, deaf=params.deaf)
    return result


@sell.compensation
def take_back(params: Note, done: Value | None, ctx: Context) -> None:
    with engine_for(os.environ["SHOP_URL"]).begin() as connection:
        ctx.effect(connection, None)
        connection.execute(delete(sales).where(sales.c.step_id == ctx.step_id))


def open_shop(url: str) -> Any:
    """The shop's own tables."""
    engine = engine_for(url)
    metadata.create_all(engine)
    return engine
