"""All that is known of a run when all is over, and what is wrong with it: what the invariants are judged by."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.ledger.history import Happened
from schemas.states import RunStatus
from workers.faults.log import Act

Sort = Literal["duplicate", "loss", "stuck", "other"]


@dataclass(frozen=True, slots=True)
class StepFacts:
    """A step as it stands in the end. inputs: fingerprint of what its action must have seen, None: nobody knows;
    has_undo: its action has a compensation; confined: the end of its run's workspace undoes what no compensation does;
    has_probe: before anything else a worker is to ask what became of it.
    """

    id: str
    action: str
    effect: str
    needs: tuple[str, ...]
    status: str
    max_attempts: int = 3
    inputs: str | None = None
    has_undo: bool = True
    confined: bool = False
    has_probe: bool = False


@dataclass(frozen=True, slots=True)
class RunFacts:
    """All that is known of a run when all is over.

    events: all of them, or (told: false) those that were told before the store forgot the run. ended_at, bound_at: ms
    since the epoch. letters: reasons of dead letters, by step; `undo` for those about undos. late: steps whose landing
    was refused. landed: steps whose row says that they have had their effect. reason: why it ended as it did, in the
    store's words.
    """

    run_id: str
    status: str
    version: int
    policy_hash: str
    steps: tuple[StepFacts, ...]
    events: tuple[Happened, ...]
    acts: tuple[Act, ...]
    ended_at: int | None = None
    bound_at: int | None = None
    letters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    late: frozenset[str] = frozenset()
    landed: frozenset[str] = frozenset()
    told: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Violation:
    """What does not hold, and where. sort: under which count of the certificate it falls."""

    invariant: str
    sort: Sort
    run_id: str
    text: str


Found = Iterator[tuple[Sort, str]]


def is_known(run: RunFacts) -> bool:
    """Whether it is known how each step stands. A run that has succeeded has completed them all."""
    return run.told or run.status == RunStatus.SUCCEEDED
