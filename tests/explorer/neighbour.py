"""Another run, of the same session, shard, plan and step ids, half done: nothing of it may be read or changed (I11).

Supervisors do not come to it, for it is in no `due` set. Whatever it has is marked, so that an answer that holds any of
it is known.
"""

from dataclasses import dataclass, field
from typing import Any

from redis import Redis

from orchestrator.store.keys import member
from orchestrator.store.replies import DUTIES, Granted
from schemas.ids import RunRef
from tests.explorer.operations import Answer, Op
from tests.explorer.written import Book
from tests.support.workbench import Workbench

OWN, MARK = 1, 777_001  # what the run that is explored works with, and what the other does
MARK_TEXT = str(MARK)
RESULT = f'{{"x": {MARK}}}'


class NotMovedIn(Exception):
    """Something is so wrong that not even the other run got as far as that."""


@dataclass
class Neighbour:
    """The other run, as it was when the exploration began."""

    ref: RunRef
    _there: list[Any] = field(default_factory=list)
    _rows: dict[str, list[Any]] = field(default_factory=dict)

    def remember(self, there: list[Any], book: Book) -> None:
        """What it has from here on."""
        if not any(MARK_TEXT in str(value) for value in there):
            raise NotMovedIn
        self._there, self._rows = there, self._written(book)

    def of_store(self, op: Op, answer: Answer, there: list[Any]) -> list[str]:
        """What a call on the explored run did to this one, or said of it. there: what is under its keys now."""
        changed = [f"I11: {op.name} changed another run"] if there != self._there else []
        return [*changed, *self._said(op, answer)]

    def of_ledger(self, op: Op, answer: Answer, book: Book) -> list[str]:
        """The same of a transaction."""
        changed = [f"I11: {op.name} changed another run's rows"] if self._written(book) != self._rows else []
        return [*changed, *self._said(op, answer)]

    def _said(self, op: Op, answer: Answer) -> list[str]:
        told = any(mark in answer.key for mark in (self.ref.run_id, MARK_TEXT))
        return [f"I11: {op.name} told something of another run"] if told else []

    def _written(self, book: Book) -> dict[str, list[Any]]:
        return {table: [row for row in rows if self.ref.run_id in row] for table, rows in book.tables.items()}


def moved_in(bench: Workbench, url: str, ref: RunRef, effect: str) -> Neighbour:
    """Its first step has been done."""
    claim = bench.store.guard.claim_step(ref, "s0", generation=1, claim_id="neighbour", worker="elsewhere:1:1")
    if not isinstance(claim, Granted):
        raise NotMovedIn
    if effect != "pure":
        bench.ledger.effects.land(ref.run_id, "s0", "do", claim.fence, claim.token, RESULT)
    bench.store.guard.complete_step(ref, "s0", claim.fence, "neighbour", RESULT)
    with Redis.from_url(url) as client:
        for duty in DUTIES:
            client.zrem(bench.store.keys.due(0, duty), *(member(ref, step) for step in (None, "s0", "s1", "s2")))
    return Neighbour(ref)
