"""What a filtered list of runs costs when there are a hundred times as many of them."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.figures import Figure, Result
from orchestrator.ledger import Ledger, RunFilter, open_ledger
from orchestrator.ledger.tables import run_words, runs
from schemas.ids import run_id_for, session_key
from schemas.states import RunStatus

PAGE: Final = 50
FIRST: Final = 1_700_000_000_000  # ms; one run each second
BATCH: Final = 2_000


def filters(count: int) -> dict[str, tuple[RunFilter, bool]]:
    """What is asked, and whether for a page in the middle of the list."""
    late = FIRST + 1000 * (count - 500)
    return {
        "all": (RunFilter(), False),
        "all, in the middle": (RunFilter(), True),
        "status": (RunFilter(ended=True, status=RunStatus.FAILED), False),
        "status, in the middle": (RunFilter(ended=True, status=RunStatus.FAILED), True),
        "session": (RunFilter(session_id="session-3"), False),
        "planner": (RunFilter(planner="planner-7"), False),
        "action": (RunFilter(action="action-5"), False),
        "a rare action": (RunFilter(action="rare"), False),
        "error": (RunFilter(error="step_timeout"), False),
        "error, in the middle": (RunFilter(error="step_timeout"), True),
        "time": (RunFilter(since=late, until=late + 60_000), False),
        "action and time": (RunFilter(action="action-5", since=late), False),
        "status and planner": (RunFilter(ended=True, status=RunStatus.FAILED, planner="planner-7"), False),
        "nothing": (RunFilter(action="nobody's"), False),
    }


def search(counts: tuple[int, int], rounds: int) -> Result:
    """Each filter on a ledger of few finished runs and on one of many, in turn; the worst ratio counts."""
    with tempfile.TemporaryDirectory() as folder:
        few, many = (filled(Path(folder) / f"{count}.db", count) for count in counts)
        ratios = {name: ratio(few, many, counts, name, rounds) for name in filters(counts[0])}
        few.close()
        many.close()
    worst = max(ratios, key=lambda name: median(ratios[name]))
    title = f"a page of {PAGE} runs by {len(ratios)} filters, of {counts[1]:,} finished runs and of {counts[0]:,}"
    figures = [Figure("ratio", "", ratios[worst], f"time of many over time of few, by the worst filter: {worst}")]
    return Result("search", title, figures)


def ratio(few: Ledger, many: Ledger, counts: Sequence[int], name: str, rounds: int) -> list[float]:
    """Time of many over time of few, once a round."""
    pairs = [(asked(few, counts[0], name), asked(many, counts[1], name)) for _ in range(rounds)]
    return [large / small for small, large in pairs]


def asked(ledger: Ledger, count: int, name: str) -> float:
    """Seconds that one page takes: the median of several."""
    wanted, middle = filters(count)[name]
    before = run_of(count // 2)["run_id"] if middle else None
    took = []
    for _ in range(15):
        began = time.perf_counter()
        ledger.listed(PAGE, before, wanted)
        took.append(time.perf_counter() - began)
    return median(took)


def filled(path: Path, count: int) -> Ledger:
    """A ledger of this many runs that have ended."""
    ledger = open_ledger(f"sqlite:///{path}")
    ledger.upgrade()
    numbers = iter(range(count))
    while batch := list(islice(numbers, BATCH)):
        with ledger.begin() as connection:
            connection.execute(runs.insert(), [run_of(number) for number in batch])
            connection.execute(run_words.insert(), [word for number in batch for word in words_of(number)])
    return ledger


def run_of(number: int) -> dict[str, Any]:
    """One run: every tenth failed, every second is of one of seven sessions, planned by one of ten planners."""
    session_id = f"session-{number // 2 % 7}" if number % 2 == 0 else None
    return {
        "run_id": run_id_for("celery", session_id, f"run-{number}"),
        "session": session_key(session_id),
        "session_id": session_id,
        "request_id": f"run-{number}",
        "principal": "celery",
        "planner": f"planner-{number // 10 % 10}",
        "submission_hash": "a" * 64,
        "submission_text": '{"goal":"' + "g" * 300 + '"}',
        "policy_text": "{}",
        "policy_hash": "b" * 64,
        "context_hash": "c" * 64,
        "deadline_ms": 3_600_000,
        "accepted_at": FIRST + 1000 * number,
        "generation": 1,
        "status": RunStatus.FAILED if number % 10 == 3 else RunStatus.SUCCEEDED,
        "reason": None,
        "version": 20,
        "ended_at": FIRST + 1000 * number + 500,
    }


def words_of(number: int) -> Iterator[dict[str, Any]]:
    """Two actions of twenty, a rare one, and the kind of error of a run that failed."""
    run = run_of(number)
    words = [("action", f"action-{number % 20}"), ("action", f"action-{(number + 7) % 20}")]
    words += [("action", "rare")] if number % 997 == 5 else []
    words += [("error", "step_timeout")] if run["status"] is RunStatus.FAILED else []
    for about, word in words:
        yield {"run_id": run["run_id"], "about": about, "word": word, "accepted_at": run["accepted_at"]}
