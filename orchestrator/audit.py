"""What the history of an ended run must not show. Every fact from here is a promise that was broken; there are none.

Each commit of a step is the only one of its generation; what was sent has ended; each transition has the version after
the one before; claims and commits bear the hash of the policy that the run was accepted with.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from orchestrator.store import Store
from orchestrator.store.views import Event
from orchestrator.telemetry import signals
from orchestrator.telemetry.events import Occurrence
from schemas.ids import RunRef
from schemas.states import STEP_TERMINAL, StepStatus

PAGE: Final = 2000


def audit(store: Store, ref: RunRef) -> Iterator[Occurrence]:
    """Everything that is wrong with the history of a run that has ended."""
    return faults(history(store, ref))


def history(store: Store, ref: RunRef) -> Iterator[Event]:
    """All transitions of a run, in order."""
    after: str | None = None
    while page := store.views.events(ref, after, PAGE):
        yield from page
        after = page[-1].id


@dataclass
class _Seen:
    """What has been read so far. commits: of this generation; statuses: of steps that were sent."""

    version: int | None = None
    policy_hash: str | None = None
    commits: Counter[str] = field(default_factory=Counter)
    statuses: dict[str, str] = field(default_factory=dict)


def faults(events: Iterable[Event]) -> Iterator[Occurrence]:
    """Pure: the events of one run in their order, and that is all of them."""
    seen = _Seen()
    found = chain.from_iterable(
        chain(_version(seen, event), _policy(seen, event), _moves(seen, event)) for event in events
    )
    yield from found
    yield from _twice(seen)
    left = sum(status not in STEP_TERMINAL for status in seen.statuses.values())
    if left:
        yield signals.NeverEnded(left)


def _version(seen: _Seen, event: Event) -> Iterator[Occurrence]:
    before, seen.version = seen.version, event.version
    if before is not None and event.version != before + 1:
        yield signals.VersionConflict("gap" if event.version > before else "back", before, event.version)


def _policy(seen: _Seen, event: Event) -> Iterator[Occurrence]:
    found = event.fields.get("policy_hash")
    seen.policy_hash = seen.policy_hash or found
    if found is not None and seen.policy_hash is not None and found != seen.policy_hash:
        yield signals.PolicyMismatch("end", seen.policy_hash, found)


def _moves(seen: _Seen, event: Event) -> Iterator[Occurrence]:
    if event.event == "run.retried":
        yield from _twice(seen)
        seen.commits.clear()
    for step_id, status, _, _ in event.steps:
        if status == StepStatus.DISPATCHED or step_id in seen.statuses:
            seen.statuses[step_id] = status
        if status == StepStatus.COMPLETED:
            seen.commits[step_id] += 1


def _twice(seen: _Seen) -> Iterator[Occurrence]:
    for step_id, count in seen.commits.items():
        if count > 1:
            yield signals.CommittedTwice(step_id, count - 1)
