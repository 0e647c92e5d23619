"""Is the state store the one the ledger remembers? Asked when an installation is set up and after a server came back.

    upgrade   the ledger's schema and epoch, then an identity for every shard that has none and has lost nothing
    verify    after the server was started again or exchanged: its shards belong to it from now on, with fences far
              ahead of any that was given before

A shard that lost runs is left as it is by both: restore builds it again. A run without a plan has done
nothing yet, and is simply created again.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from orchestrator import app as celery_app
from orchestrator import submission
from orchestrator.errors import StoreAmnesia, Superseded
from orchestrator.ledger import Ledger, LedgerRun
from orchestrator.recovery import adoption, restore, verdicts
from orchestrator.settings import Settings
from orchestrator.store import Store, open_store
from orchestrator.store.stream import BEGINNING
from schemas.ids import RunRef

SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Verified:
    """runs: open runs looked for; adopted: those created again; shards: taken over; fences: runs set ahead."""

    runs: int
    adopted: int
    shards: int
    fences: int


@dataclass(frozen=True, slots=True)
class Upgraded:
    """epoch: the reference; shards: those that were given their identity just now; adopted: runs created again; lost:
    shards that have forgotten runs and are to be built again."""

    epoch: str
    shards: int
    adopted: int
    lost: int


def upgrade(ledger: Ledger, settings: Settings) -> Upgraded:
    """Bring ledger and store to where a worker may start. Repeated, it changes nothing.

    A shard that knows nothing, and of which the ledger has runs under way that had a plan, is left to a restore.
    """
    ledger.upgrade()
    epoch = ledger.create_epoch(settings.namespace, settings.shards)
    store = open_store(settings, epoch.epoch)
    adoption.adopt(ledger, store, settings.namespace)
    blank = [shard for shard, facts in store.admin.shards().items() if facts.epoch is None]
    missing = [run for run in open_runs_in(ledger, store, settings, blank) if not is_there(store, run)]
    lost = {store.keys.shard_of(run.run_id) for run in missing if run.plan_hash is not None}
    cursors = ledger.history.cursors(settings.namespace)
    for shard in set(blank) - lost:
        with suppress(Superseded):  # somebody else was faster
            store.restoring.set_up(shard, cursors.get(shard, BEGINNING))
    adopted = create(store, settings, [run for run in missing if store.keys.shard_of(run.run_id) not in lost])
    return Upgraded(epoch.epoch, len(blank) - len(lost), adopted, len(lost))


def verify(ledger: Ledger, store: Store, settings: Settings) -> Verified:
    """Hold the store against the ledger, and accept its server where nothing is missing.

    StoreAmnesia: a shard has forgotten runs, or some of what they did. ConfigError: one belongs to somebody else.
    """
    states = verdicts.judged(ledger, store, settings.namespace)
    refuse_losses(states)
    expected = list(open_runs_in(ledger, store, settings, states))
    missing = [run for run in expected if not is_there(store, run)]
    site = restore.Site(celery_app.app, store, ledger, settings, restore.this_process())
    done = [restore.accept(site, shard) for shard in states]
    refuse_losses(verdicts.judged(ledger, store, settings.namespace))
    refuse_failed([report for report in done if report and report.failed])
    return Verified(len(expected), len(missing), len(states), sum(report.accepted for report in done if report))


def refuse_losses(states: Mapping[int, str]) -> None:
    """StoreAmnesia if a shard has not only moved."""
    lost = {shard: state for shard, state in states.items() if state != "moved"}
    if lost:
        raise forgotten(lost)


def refuse_failed(reports: list[restore.Report]) -> None:
    """StoreAmnesia if runs met errors, so that their shards stay shut."""
    if reports:
        runs = sum(report.failed for report in reports)
        message = f"{len(reports)} shards of the state store stay shut: {runs} of their runs met errors"
        raise StoreAmnesia(message, hint="`run.not_built` in the log names the runs; what can be mended is tried again")


def forgotten(lost: Mapping[int, str]) -> StoreAmnesia:
    """What to say of shards that are to be built again."""
    shown = ", ".join(f"{shard}: {state}" for shard, state in sorted(lost.items())[:SHOWN])
    more = ", …" if len(lost) > SHOWN else ""
    return StoreAmnesia(
        f"{len(lost)} shards of the state store have no memory of what the ledger knows ({shown}{more})",
        hint="the supervisors build them again; without supervisors `mandor ledger restore` does",
    )


def open_runs_in(ledger: Ledger, store: Store, settings: Settings, shards: Collection[int]) -> Iterator[LedgerRun]:
    """Runs of these shards that have no end in the ledger."""
    pages = verdicts.open_runs(ledger, settings.namespace) if shards else iter(())
    return (run for page in pages for run in page if store.keys.shard_of(run.run_id) in shards)


def is_there(store: Store, run: LedgerRun) -> bool:
    """Whether the store has the run."""
    return store.views.run(RunRef(run.run_id, run.session)) is not None


def create(store: Store, settings: Settings, missing: list[LedgerRun]) -> int:
    """Create runs that only the ledger knows. Their plan messages are due, and a supervisor sends them."""
    for run in missing:
        store.runs.create_run(RunRef(run.run_id, run.session), submission.to_create(run, settings))
    return len(missing)
