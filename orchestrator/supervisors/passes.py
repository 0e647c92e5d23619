"""What all passes share: which shards, how many members, what an error means, and what is counted.

A pass takes members whose time has come and hands each to its duty. The store moves what it gives out forward, so what
a pass could not do comes again. Nothing is remembered between passes: what one suspects, another does not act upon.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Final

from orchestrator import dispatch
from orchestrator.dispatch import App
from orchestrator.errors import (
    LedgerMissing,
    LedgerUnavailable,
    StoreAmnesia,
    StoreMoved,
    StoreUnavailable,
)
from orchestrator.store import Store
from orchestrator.store.replies import Due, Duty, Publish, Resting
from orchestrator.telemetry import events
from orchestrator.telemetry.logs import emit, identity

AT_ONCE: Final = 100
ROUNDS: Final = 10

# what the duty did with a member: the messages it asks for, or None when there was nothing to do
Handle = Callable[[Due], Publish | None]


@dataclass(frozen=True, slots=True)
class Counts:
    """What one pass did.

    taken: members looked at; moved: those that were moved on; sent: messages the broker took; failed: members, or whole
    shards, left by an error for the next pass; resting: shards where holders get time to renew first; skipped: shards
    seen by a pass just now.
    """

    taken: int = 0
    moved: int = 0
    sent: int = 0
    failed: int = 0
    resting: int = 0
    skipped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        mine, theirs = asdict(self), asdict(other)
        return Counts(**{name: mine[name] + theirs[name] for name in mine})

    def as_dict(self) -> dict[str, int]:
        """For logs and for the task's result."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Duties:
    """One duty of one supervisor."""

    supervisor: str
    duty: Duty
    handle: Handle
    interval_ms: int
    at_once: int = field(default=AT_ONCE)
    rounds: int = field(default=ROUNDS)


def each_shard(supervisor: str, shards: Iterable[int], look: Callable[[int], Counts]) -> Counts:
    """One pass over these shards. Ends early when the store is away; LedgerUnavailable and LedgerMissing are raised.

    One shard may be shut while the others are whole, or meet an error of its own: it has failed, and they have their
    turn. Many shards that meet the same are told of once.
    """
    total, told = Counts(), set[str]()
    for shard in shards:
        try:
            total += look(shard)
        except StoreUnavailable as error:
            tell_failed(supervisor, error)
            return total + Counts(failed=1)
        except (LedgerUnavailable, LedgerMissing):
            raise
        except Exception as error:  # noqa: BLE001  # whatever one shard is met with, the others have their turn
            total += Counts(failed=1)
            if events.kind(error) not in told:
                told.add(events.kind(error))
                tell_failed(supervisor, error)
    return total


def walk(app: App, store: Store, duty: Duties) -> Counts:
    """One pass of a duty over all shards. Members that need the ledger wait for the next one while it is away: who has
    found it hanging has the others refused at once (orchestrator.ledger.respite). It is told of once."""
    told = set[str]()
    return each_shard(duty.supervisor, range(store.shards), lambda shard: _shard(app, store, duty, shard, told))


def _shard(app: App, store: Store, duty: Duties, shard: int, told: set[str]) -> Counts:
    if not store.runs.begin_pass(shard, duty.duty, duty.interval_ms):
        return Counts(skipped=1)
    total = Counts()
    for _ in range(duty.rounds):
        taken = store.runs.take_due(shard, duty.duty, duty.at_once)
        if isinstance(taken, Resting):
            return total + Counts(resting=1)
        total += _round(app, duty, taken, told)
        if len(taken) < duty.at_once:
            break
    return total


def _round(app: App, duty: Duties, taken: tuple[Due, ...], told: set[str]) -> Counts:
    """Handle members and send what they ask for, also when the store goes away between two of them."""
    counts, wave = Counts(taken=len(taken)), list[Publish]()
    try:
        for member in taken:
            counts += _member(duty, member, wave, told)
    finally:
        sent = dispatch.publish(app, [message for publish in wave for message in publish])
    return counts + Counts(sent=sent)


def _member(duty: Duties, member: Due, wave: list[Publish], told: set[str]) -> Counts:
    with identity(run_id=member.ref.run_id, step_id=member.step_id):
        try:
            publish = duty.handle(member)
        except (StoreUnavailable, StoreMoved, StoreAmnesia):
            raise
        except LedgerUnavailable as away:
            if away.kind not in told:
                told.add(away.kind)
                tell_failed(duty.supervisor, away)
            return Counts(failed=1)
        except Exception as error:  # noqa: BLE001  # whatever one member is met with, the others have their turn
            tell_failed(duty.supervisor, error)
            return Counts(failed=1)
    if publish is None:
        return Counts()
    wave.append(publish)
    return Counts(moved=1)


def tell_failed(supervisor: str, error: Exception) -> None:
    """Log what a pass was met with."""
    emit(events.PassFailed(supervisor, events.kind(error), events.where(error)))
