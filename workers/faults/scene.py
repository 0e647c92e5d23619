"""What happens in one scenario: runs that were announced, faults that were done to them, and when."""

import time
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from workers.faults.orders import Order

SUCCEEDED: Final = frozenset({"succeeded"})
UNDONE: Final = frozenset({"compensated", "compensation_failed", "failed"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run that is to be. fields: its submission; ends: how it may end."""

    run_id: str
    fields: dict[str, Any]
    ends: frozenset[str] = SUCCEEDED


@dataclass(frozen=True, slots=True)
class Fault:
    """Something done on purpose, at that time (ms since the epoch). run_id: empty for what met whatever was there;
    step_id: None for what was done to a whole run.

    interrupts: something stops by it, and recovers.
    """

    text: str
    at: int
    run_id: str
    step_id: str | None = None
    interrupts: bool = True


@dataclass
class Scene:
    """One scenario under way. draw: all that is left to chance comes from it, so that a seed says it again. call: part
    of its runs' names, so that their effects do not meet those of the same seed drawn before. missed: orders that
    nobody has carried out. left_out: what this plan gives no occasion for, and why. callback: whom its runs tell of
    their ends. spare_s: what a recovery may take here beside leases and sweeps.
    """

    name: str
    seed: int
    call: str = ""
    draw: Random = field(init=False)
    runs: list[Wanted] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    missed: list[Order] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    callback: str | None = None
    spare_s: float = 0.0

    def __post_init__(self) -> None:
        self.draw = Random(f"{self.seed}:{self.name}")  # a draw that can be repeated

    def fault(self, text: str, run_id: str, step_id: str | None = None, at: int | None = None) -> None:
        """Note what was done just now, or then."""
        self.faults.append(Fault(text, now_ms() if at is None else at, run_id, step_id))

    def nuisance(self, text: str, run_id: str, step_id: str | None = None, at: int | None = None) -> None:
        """The same of what is to interrupt nothing."""
        self.faults.append(Fault(text, now_ms() if at is None else at, run_id, step_id, interrupts=False))

    def expect(self, holds: bool, text: str) -> None:
        """Something that is promised beyond the invariants."""
        if not holds:
            self.wrong.append(text)

    def leave_out(self, text: str) -> None:
        """Something that belongs to the scenario is not done."""
        self.left_out.append(text)

    def run_ids(self) -> list[str]:
        """All that belong to this scenario."""
        return [run.run_id for run in self.runs]


def now_ms() -> int:
    """The time of day, in ms since the epoch."""
    return time.time_ns() // 1_000_000
