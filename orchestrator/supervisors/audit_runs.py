"""Looks whether the state store still has what the ledger remembers, and builds again what it has not.

With each pass: is every shard ours, verified for the server that answers? One that is not is accepted or built again
(orchestrator.recovery). Every MANDOR_AUDIT_S, for each run without an end: is it there, and where supervisors look?
"""

from typing import Final

from orchestrator import adoption, recovery, verdicts
from orchestrator.dispatch import App
from orchestrator.errors import StoreUnavailable
from orchestrator.ledger import Ledger, LedgerRun
from orchestrator.recovery import Site
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.supervisors.passes import Counts
from orchestrator.telemetry import events, recovered
from orchestrator.telemetry.logs import emit, identity
from schemas.ids import RunRef

NAME = "audit-runs"
YOUNG_MS: Final = 60_000  # a run that was accepted just now may be on its way to the store


def run_once(app: App, store: Store, ledger: Ledger, settings: Settings) -> Counts:
    """One pass. resting: losses whose time has not come; LedgerUnavailable is raised."""
    site = Site(app, store, ledger, settings, recovery.this_process())
    try:
        if not settings.restore:
            return Counts(failed=len(verdicts.suspicious(store)))
        waiting = recovery.recover(site)
        if waiting or not store.runs.begin_pass(0, "audit", round(2 * settings.audit_s * 1000)):
            return Counts(resting=len(waiting))
        adoption.adopt(ledger, store, settings.namespace)
        return audit(site)
    except StoreUnavailable as error:
        emit(events.PassFailed(NAME, error.kind, events.where(error)))
        return Counts(failed=1)


def audit(site: Site) -> Counts:
    """All runs without an end. moved: those that were mended; failed: those that are lost, which is noted."""
    total, shards = Counts(), set[int]()
    for page in verdicts.open_runs(site.ledger, site.settings.namespace):
        lost = recovery.lost_of(site, [run for run in page if not _is_young(site, run)])
        shards |= {site.store.keys.shard_of(run.run_id) for run in lost if recovery.can_be_built(site, run)}
        missing = {run.run_id for run in lost}
        mended = sum(mend(site, run) for run in page if run.run_id not in missing)
        total += Counts(taken=len(page), moved=mended, failed=len(lost))
    for shard in sorted(shards):
        recovery.note(site, shard, recovery.RUNS, site.store.scripts.server())
    return total


def _is_young(site: Site, run: LedgerRun) -> bool:
    return run.plan_hash is None and run.accepted_at > site.ledger.now_ms() - YOUNG_MS


def mend(site: Site, run: LedgerRun) -> bool:
    """Put one run back where supervisors look, if it is not there."""
    added = site.store.restoring.mend_due(RunRef(run.run_id, run.session))
    if not isinstance(added, int) or not added:
        return False
    with identity(run_id=run.run_id):
        emit(recovered.RunMended(added))
    return True
