"""Looks whether the state store still has what the ledger remembers, and builds again what it has not.

With each pass: is every shard ours, verified for the server that answers? One that is not is accepted or built again
(recovery.restore). Every MANDOR_AUDIT_S, for each run without an end: is it there, and where supervisors look?
"""

from collections.abc import Collection
from functools import partial
from typing import Final

from orchestrator.dispatch import App
from orchestrator.errors import ConfigError, StoreAmnesia, StoreMoved, StoreUnavailable
from orchestrator.isolation import apart
from orchestrator.ledger import Ledger, LedgerRun
from orchestrator.ledger.losses import STRIDE, Loss
from orchestrator.recovery import adoption, restore, verdicts
from orchestrator.recovery.restore import Site
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.restoring import Place
from orchestrator.supervisors.passes import Counts, tell_failed
from orchestrator.telemetry import recovered
from orchestrator.telemetry.logs import emit
from schemas.ids import RunRef

NAME = "audit-runs"
YOUNG_MS: Final = 60_000  # a run that was accepted just now may be on its way to the store


def run_once(app: App, store: Store, ledger: Ledger, settings: Settings) -> Counts:
    """One pass. resting: losses whose time has not come; LedgerUnavailable is raised."""
    site = Site(app, store, ledger, settings, restore.this_process())
    try:
        if not settings.restore:
            return Counts(failed=len(verdicts.states(store)))
        waiting = _recover(site)
        shut = {*verdicts.states(store), *(loss.shard for loss in waiting)}
        whole = [shard for shard in range(store.shards) if shard not in shut]
        # one of them keeps for all when they were last looked through
        if not whole or not store.runs.begin_pass(whole[0], "audit", round(2 * settings.audit_s * 1000)):
            return Counts(resting=len(waiting))
        failed: list[Exception] = []
        adoption.adopt(ledger, store, settings.namespace, partial(apart, ledger, failed=failed))
        return audit(site, whole) + Counts(resting=len(waiting), failed=len(failed))
    except StoreUnavailable as error:
        tell_failed(NAME, error)
        return Counts(failed=1)


def _recover(site: Site) -> list[Loss]:
    """What is still to be made good. A shard that is somebody else's is told of, and left alone."""
    try:
        return restore.recover(site)
    except ConfigError as error:
        tell_failed(NAME, error)
        return site.ledger.losses.open(site.settings.namespace)


def audit(site: Site, shards: Collection[int]) -> Counts:
    """All runs of these shards without an end. moved: those that were mended; failed: those that are lost, which is
    noted, or that met an error."""
    total, lossy, failed = Counts(), set[int](), list[Exception]()
    for page in verdicts.open_runs(site.ledger, site.settings.namespace):
        here = [run for run in page if site.store.keys.shard_of(run.run_id) in shards]
        lost = verdicts.lost_of(site.ledger, site.store, [run for run in here if not _is_young(site, run)])
        lossy |= {site.store.keys.shard_of(run.run_id) for run in lost if restore.can_be_built(site, run)}
        missing = {run.run_id for run in lost}
        mended = _mend_all(site, [run for run in here if run.run_id not in missing], failed)
        total += Counts(taken=len(here), moved=mended, failed=len(lost))
    for shard in sorted(lossy):
        restore.note(site, shard, restore.RUNS, site.store.scripts.server())
    return total + Counts(failed=len(failed))


def _mend_all(site: Site, runs: list[LedgerRun], failed: list[Exception]) -> int:
    closed, mended, shut = site.ledger.losses.fences([run.run_id for run in runs]), 0, set[int]()
    for run in runs:
        shard = site.store.keys.shard_of(run.run_id)
        if shard in shut:
            continue
        with apart(site.ledger, run.run_id, failed):
            try:
                mended += mend(site, run, closed.get(run.run_id, 0))
            except (StoreMoved, StoreAmnesia):
                shut.add(shard)  # just now: the next pass sees to it
    return mended


def _is_young(site: Site, run: LedgerRun) -> bool:
    return run.plan_hash is None and run.accepted_at > site.ledger.now_ms() - YOUNG_MS


def mend(site: Site, run: LedgerRun, closed_to: int) -> bool:
    """Put one run back where supervisors look, and beyond the fence to which its effect rows were closed, if it is not
    there."""
    ref = RunRef(run.run_id, run.session)
    added = site.store.restoring.mend_due(ref)
    places = added if isinstance(added, int) else 0
    moved = _catch_up(site, ref, closed_to)
    if not moved and (not places or _has_moved_on(site, run)):
        return False
    emit(recovered.RunMended(places))
    return True


def _has_moved_on(site: Site, run: LedgerRun) -> bool:
    """Whether it has ended since it was read, also in the ledger: nobody was to look at it any more, and whoever looks
    now takes it off again."""
    now = site.ledger.run(run.run_id)
    return now is None or now.ended_at is not None or now.generation != run.generation


def _catch_up(site: Site, ref: RunRef, closed_to: int) -> bool:
    """Whoever built a run again may have closed its rows, and then died while it came back: they refuse its claims."""
    state = site.store.views.run(ref)
    if state is None or state.fence >= closed_to:
        return False
    return site.store.restoring.accept_run(ref, Place(site.store.scripts.server(), ""), STRIDE, closed_to)
