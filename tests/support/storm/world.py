"""What is found outside when all is over: in till, post office and accounts, held against how each step stands."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.support.storm import shapes
from workers.faults.effects import may_stand
from workers.faults.known import RunFacts, StepFacts

DONE, UNDONE = "completed", "compensated"


def complaints(folder: Path, ledger: Path, runs: Sequence[RunFacts], orders: Mapping[str, str]) -> Iterator[str]:
    """What does not fit. orders: the order of each run. What a letter names is a person's business."""
    accounts = _accounts(ledger)
    for run in runs:
        for step in run.steps:
            if step.id in _LOOK and not may_stand(run, step):
                yield from _complain(run, step, _found(folder, accounts, run, step, orders[run.run_id]))


def _complain(run: RunFacts, step: StepFacts, found: int) -> Iterator[str]:
    """found: how often the effect is there. An account that was changed and restored has two changes."""
    allowed = {1} if step.status == DONE else {0, 2} if step.id == "book" and step.status == UNDONE else {0}
    if found not in allowed:
        yield f"run {run.run_id}: {step.id} is {step.status}, and outside it is found {found} times"


def _found(folder: Path, accounts: Mapping[str, int], run: RunFacts, step: StepFacts, order: str) -> int:
    if step.id == "book":
        return accounts.get(shapes.account(order), 0)
    if step.id == "send":
        return _letters(folder / "post" / f"{run.run_id}.{step.id}")
    keys = {act.key.removesuffix(":undo") for act in run.acts if act.step_id == step.id and act.key}
    return sum((folder / "till" / key).exists() for key in keys)


def _letters(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def _accounts(ledger: Path) -> dict[str, int]:
    """How often each was changed."""
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
        return dict(connection.execute("SELECT entity_id, version FROM records"))


_LOOK: Final = ("charge", "insist", "send", "book")
