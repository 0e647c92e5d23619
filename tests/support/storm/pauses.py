"""How long runs stood still, as the ledger's history tells. Pure.

A run's own bound (I9) holds its whole deadline, an hour; from one transition to the next it must not take that long.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.ledger.history import Happened
from tests.support.storm.reclaims import CLAIMED, Outage, covered


@dataclass(frozen=True, slots=True)
class Pause:
    """From one transition of a run to the next, without the time in which nobody could have moved it."""

    run_id: str
    before: str
    behind: str
    ms: int

    @property
    def held(self) -> bool:
        """Whether somebody was at work; else it waited for a worker."""
        return self.before.endswith(CLAIMED)


def pauses(run_id: str, events: Sequence[Happened], outages: Sequence[Outage]) -> Iterator[Pause]:
    """All of a run."""
    for one, other in pairwise(events):
        yield Pause(run_id, one.event, other.event, other.at - one.at - covered(outages, one.at, other.at))


def longest(found: Sequence[Pause], *, held: bool) -> Pause | None:
    """Of one kind."""
    return max((pause for pause in found if pause.held == held), key=lambda pause: pause.ms, default=None)
