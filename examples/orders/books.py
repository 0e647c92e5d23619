"""The audit: what the shop, the carrier and the invoices say afterwards, read without Mandor's help."""

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from examples.orders import carrier
from examples.orders.planner import invoice_text
from examples.orders.shop import Order
from workers.workspace import Workspaces

SHEET, CHECKSUMS = "invoices.html", "SHA256SUMS"


@dataclass(frozen=True)
class Charges:
    """charged: cents over all accounts; twice: postings that were made more than once."""

    charged: int
    twice: int


def charges(ledger: Path, orders: Sequence[Order]) -> Charges:
    """Read the accounts. Each posting is a key of its account, each change of an account one version and one row."""
    accounts = {order.account: {one.id for one in orders if one.account == order.account} for order in orders}
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
        rows = connection.execute("select entity_id, version, data_text from records").fetchall()
        changes = connection.execute("select count(*) from record_changes").fetchone()[0]
    posted = {entity: json.loads(text) for entity, _, text in rows if entity in accounts}
    charged = -sum(sum(postings.values()) for postings in posted.values())
    postings = sum(len(one) for one in posted.values())
    by_version = sum(version for entity, version, _ in rows if entity in accounts) - postings
    return Charges(charged, max(by_version, changes - postings))


def parcels(home: Path) -> carrier.Books:
    """Ask the carrier."""
    return carrier.audit(home / "carrier.db")


def copy_invoices(home: Path, runs: Mapping[str, Order], out: Path) -> int:
    """Replace the folder by the invoices of these runs (run id -> order); answers how many are right."""
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    workspaces = Workspaces(home)
    right = 0
    for run_id, order in runs.items():
        written = workspaces.path(run_id) / f"{order.id}.txt"
        if written.is_file():
            shutil.copyfile(written, out / written.name)
            right += written.read_text(encoding="utf-8") == invoice_text(order)
    return right


def copy_printed(home: Path, run_id: str, out: Path) -> int:
    """Put the sheet and the checksums that a run has made beside the invoices; answers how many of these they fit."""
    printed = Workspaces(home).path(run_id)
    if not all((printed / name).is_file() for name in (SHEET, CHECKSUMS)):
        return 0
    for name in (SHEET, CHECKSUMS):
        shutil.copyfile(printed / name, out / name)
    lines = (out / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    invoices = {f"{_checksum(one)}  {one.name}" for one in out.glob("order-*.txt")}
    return len(invoices.intersection(lines))


def _checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def is_ours(out: Path) -> bool:
    """Whether `out` may be replaced: it is not there, or holds nothing but what a demo puts there."""
    return not out.exists() or (out.is_dir() and all(map(_is_printed, out.iterdir())))


def _is_printed(one: Path) -> bool:
    return one.match("order-*.txt") or one.name in (SHEET, CHECKSUMS)
