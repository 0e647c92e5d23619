"""Ledgers for tests, and what goes into them."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from orchestrator.ledger import Accepted, AcceptedRun, Ledger, LedgerRun, open_ledger
from schemas.dead_letter import DeadLetter, DeadLetterKind
from schemas.ids import run_id_for, session_key

SHA = "a" * 64


def url_of(path: Path) -> str:
    """The ledger URL of a file."""
    return f"sqlite:///{path}"


def fresh_ledger(folder: Path, patience_s: float = 30.0) -> Ledger:
    """An empty ledger in a folder; its file is a copy, because migrating takes longer than most tests."""
    path = folder / "ledger.db"
    shutil.copyfile(template(), path)
    return open_ledger(url_of(path), patience_s=patience_s)


@cache
def template() -> Path:
    """A ledger that was just made, at rest."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    path = Path(folder) / "ledger.db"
    made = open_ledger(url_of(path))
    made.upgrade()
    made.close()
    return path


def run_named(request_id: str, submission_hash: str = SHA, session_id: str | None = None) -> AcceptedRun:
    """A run to be accepted."""
    return AcceptedRun(
        run_id=run_id_for("celery", session_id, request_id),
        session=session_key(session_id),
        session_id=session_id,
        request_id=request_id,
        principal="celery",
        submission_hash=submission_hash,
        submission_text='{"goal":"count the boxes"}',
        policy_text='{"max_steps":10}',
        policy_hash="b" * 64,
        context_hash="c" * 64,
        deadline_ms=3_600_000,
    )


def accepted(ledger: Ledger, request_id: str) -> LedgerRun:
    """A run the ledger has accepted."""
    answer = ledger.accept(run_named(request_id))
    assert isinstance(answer, Accepted)
    return answer.run


def letter_named(letter_id: str, created_at: int = 1, run_id: str | None = None) -> DeadLetter:
    """A letter about a plan."""
    return DeadLetter(
        id=letter_id,
        kind=DeadLetterKind.PLAN,
        run_id=run_id,
        step_id=None,
        reason="refused twice",
        created_at=created_at,
        content={"attempts": []},
    )
