"""What came of it, counted. Pure: of how often each part had its effect, how each run ended, and when it was harmed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from benchmarks.faults.work import PARTS, said

REASON: Final = 200  # characters of what is told of a run that failed


@dataclass(frozen=True, slots=True)
class Seen:
    """One run. effects: how often each part has happened. end: `done` with its result, `failed`, or None: it has none.

    harmed_at, ended_at: ms since the epoch; None where nothing interrupted it, or where it has not ended.
    """

    run: str
    effects: Sequence[int]
    end: str | None
    result: Any = None
    harmed_at: int | None = None
    ended_at: int | None = None


@dataclass
class Count:
    """Of many runs. lost: effects that are missing though nothing tells that the run failed. wrong: ends that do not
    hold exactly the run's own parts. given_up: runs that are told to have failed. recovery_ms: from the last
    interruption of a run to its end, where it succeeded. given_up_for: what is told of those that failed.
    """

    runs: int = 0
    doubled: int = 0
    lost: int = 0
    stuck: int = 0
    wrong: int = 0
    given_up: int = 0
    recovery_ms: list[int] = field(default_factory=list)
    given_up_for: Counter[str] = field(default_factory=Counter)

    def add(self, run: Seen) -> None:
        """Count this one too."""
        self.runs += 1
        self.doubled += sum(max(times - 1, 0) for times in run.effects)
        self.lost += 0 if run.end == "failed" else sum(times == 0 for times in run.effects)
        self.stuck += run.end is None
        if run.end == "failed":
            self.given_up += 1
            self.given_up_for[str(run.result)[:REASON]] += 1
        self.wrong += run.end == "done" and not is_own(run)
        if run.end == "done" and run.harmed_at and run.ended_at:
            self.recovery_ms.append(run.ended_at - run.harmed_at)

    def words(self) -> str:
        """In a cell of a table: what is not as it should be, and how long recovery took."""
        found = {name: getattr(self, name) for name in ("doubled", "lost", "stuck", "wrong", "given_up")}
        bad = [f"{number} {name.replace('_', ' ')}" for name, number in found.items() if number]
        return "; ".join([", ".join(bad) or "clean", *self._recovery()])

    def fields(self) -> dict[str, Any]:
        """For programs."""
        numbers = {name: getattr(self, name) for name in ("runs", "doubled", "lost", "stuck", "wrong", "given_up")}
        times = self.recovery_ms
        recovery = [round(median(times)), max(times)] if times else None
        return {**numbers, "recovery_ms": recovery, "given_up_for": dict(self.given_up_for)}

    def _recovery(self) -> list[str]:
        if not self.recovery_ms:
            return []
        return [f"{median(self.recovery_ms) / 1000:.1f} s, {max(self.recovery_ms) / 1000:.1f} s at most"]


def is_own(run: Seen) -> bool:
    """Whether a run's result is that of its own parts, each once."""
    own = sorted(said(run.run, part) for part in PARTS)
    return isinstance(run.result, list) and sorted(map(str, run.result)) == own
