"""The other side of the shop's only outside effect: a parcel service with a database of its own.

It does what a careful service does: it keeps the idempotency key with the booking, and a request whose key it knows
gets the booking of the first. Each request is written down too, so that afterwards anybody can count.
"""

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

HOME = "ORDERS_HOME"  # environment variable: folder of the carrier's database
LATENCY_S = 0.4  # what a call over the network takes

TABLES = """
create table if not exists bookings (
    key text primary key, order_id text not null, sku text not null, weight_g integer not null, tracking text not null);
create table if not exists requests (key text not null, attempt integer not null, known integer not null);
"""


@dataclass(frozen=True)
class Books:
    """What the carrier has seen. twice: parcels booked more than once; repeated: requests whose key it knew."""

    bookings: int
    twice: int
    repeated: int


def database() -> Path:
    """Where the carrier keeps its books."""
    return Path(os.environ[HOME]) / "carrier.db"


def book(key: str, attempt: int, order_id: str, sku: str, weight_g: int) -> str:
    """Book a parcel and answer its tracking number; the same key always gets the same one."""
    time.sleep(LATENCY_S)
    with _transaction(database()) as connection:
        known = connection.execute("select tracking from bookings where key = ?", (key,)).fetchone()
        connection.execute("insert into requests values (?, ?, ?)", (key, attempt, known is not None))
        if known is not None:
            return str(known[0])
        number = connection.execute("select count(*) from bookings").fetchone()[0] + 1
        tracking = f"COFFEE{number:06}"
        connection.execute("insert into bookings values (?, ?, ?, ?, ?)", (key, order_id, sku, weight_g, tracking))
        return tracking


def audit(path: Path) -> Books:
    """Count the books of a carrier."""
    with _transaction(path) as connection:
        one = "select count(*) from (select 1 from bookings group by order_id, sku having count(*) > 1)"
        twice = connection.execute(one).fetchone()[0]
        bookings = connection.execute("select count(*) from bookings").fetchone()[0]
        repeated = connection.execute("select count(*) from requests where known").fetchone()[0]
    return Books(bookings, twice, repeated)


def complaints(run_ids: Sequence[str]) -> Iterator[str]:
    """For `mandor faults run --audit`: steps of these runs that have more than one parcel, under several keys."""
    with _transaction(database()) as connection:
        keys = [key for (key,) in connection.execute("select key from bookings")]
    steps = Counter(tuple(key.split(":")[1:3]) for key in keys)
    for (run_id, step_id), parcels in steps.items():
        if run_id in run_ids and parcels > 1:
            yield f"{parcels} parcels for {step_id} of run {run_id}"


@contextmanager
def _transaction(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        connection.executescript(TABLES)
        connection.execute("begin immediate")
        yield connection
        connection.execute("commit")
