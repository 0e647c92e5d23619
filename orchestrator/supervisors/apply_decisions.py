"""Carries out what people decided where whoever wrote it down died before the store was told, or could not reach it.

A decision is in the ledger until it has an outcome. The store knows it by its id: done twice is done once. Then come
decisions about dead letters, with which it is the same.
"""

from collections.abc import Iterator

from orchestrator import triage
from orchestrator.decisions import Desk, carry_out
from orchestrator.dispatch import App
from orchestrator.errors import NotBuiltYet, StoreUnavailable
from orchestrator.ledger import Decision, Ledger, LetterDecision
from orchestrator.store import Store
from orchestrator.supervisors.passes import AT_ONCE, ROUNDS, Counts, tell_failed
from orchestrator.telemetry import events

NAME = "apply-decisions"


def run_once(app: App, store: Store, ledger: Ledger) -> Counts:
    """One pass over decisions without an outcome, oldest first. Ends early while the store is away.

    One that cannot be carried out now keeps back those about the same run that were made later, and no others.
    """
    desk, total, kept_back, told = Desk(app, store, ledger), Counts(), set[str](), set[str]()
    for decision in pending(store, ledger):
        if decision.run_id in kept_back:
            continue
        try:
            carry_out(desk, decision)
            total += Counts(taken=1, moved=1)
        except StoreUnavailable as error:
            tell_failed(NAME, error)
            return total + Counts(taken=1, failed=1)
        except NotBuiltYet:
            kept_back.add(decision.run_id)
            total += Counts(taken=1, resting=1)
        except Exception as error:  # noqa: BLE001  # what stands in the way of one does not stop the others
            if events.kind(error) not in told:  # a shard that is shut has many
                tell_failed(NAME, error)
            told.add(events.kind(error))
            kept_back.add(decision.run_id)
            total += Counts(taken=1, failed=1)
    return total + _about_letters(desk)


def _about_letters(desk: Desk) -> Counts:
    """Replays without an outcome. Each is about a run of its own, or one that is told once only."""
    total = Counts()
    for decision in _pending_replays(desk):
        try:
            triage.carry_out_pending(desk, decision)
            total += Counts(taken=1, moved=1)
        except StoreUnavailable as error:
            tell_failed(NAME, error)
            return total + Counts(taken=1, failed=1)
        except NotBuiltYet:
            total += Counts(taken=1, resting=1)
        except Exception as error:  # noqa: BLE001  # as above
            tell_failed(NAME, error)
            total += Counts(taken=1, failed=1)
    return total


def _pending_replays(desk: Desk) -> Iterator[LetterDecision]:
    after: LetterDecision | None = None
    for _ in range(ROUNDS):
        page = desk.ledger.triage.pending(AT_ONCE, desk.store.keys.namespace, after)
        yield from page
        if len(page) < AT_ONCE:
            return
        after = page[-1]


def pending(store: Store, ledger: Ledger) -> Iterator[Decision]:
    """Decisions about our runs, also behind many that wait for a shard that is shut."""
    after: Decision | None = None
    for _ in range(ROUNDS):
        page = ledger.pending_decisions(AT_ONCE, namespace=store.keys.namespace, after=after)
        yield from page
        if len(page) < AT_ONCE:
            return
        after = page[-1]
