"""Looks whether the state store still has what the ledger remembers, and builds again what it has not.

With each pass: is every shard ours, verified for the server that answers? One that is not is accepted or built again
(orchestrator.recovery). Every MANDOR_AUDIT_S, for each run without an end: is it there, and where supervisors look?
"""

import os
import socket

from orchestrator import recovery
from orchestrator.dispatch import App
from orchestrator.errors import StoreUnavailable
from orchestrator.ledger import Ledger, LedgerRun
from orchestrator.recovery import Site
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.replies import UnknownRun
from orchestrator.supervisors.passes import Counts
from orchestrator.telemetry import events, recovered
from orchestrator.telemetry.logs import emit, identity
from schemas.ids import RunRef

NAME = "audit-runs"


def run_once(app: App, store: Store, ledger: Ledger, settings: Settings) -> Counts:
    """One pass. resting: losses whose time has not come; LedgerUnavailable is raised."""
    site = Site(app, store, ledger, settings, holder())
    try:
        if not settings.restore:
            return Counts(failed=len(recovery.judged(ledger, store, settings.namespace)))
        waiting = recovery.recover(site)
        if waiting or not store.runs.begin_pass(0, "audit", round(2 * settings.audit_s * 1000)):
            return Counts(resting=len(waiting))
        return audit(site)
    except StoreUnavailable as error:
        emit(events.PassFailed(NAME, error.kind, events.where(error)))
        return Counts(failed=1)


def holder() -> str:
    """This process, as others are told of it."""
    return f"{socket.gethostname()[:40]}:{os.getpid()}"


def audit(site: Site) -> Counts:
    """All runs without an end. moved: those that were mended; failed: those that are not there, noted as lost."""
    total, missing = Counts(), set[int]()
    for page in recovery.open_runs(site.ledger):
        for run in page:
            added = mend(site, run)
            if added is None:
                missing.add(site.store.keys.shard_of(run.run_id))
            total += Counts(taken=1, moved=int(bool(added)), failed=int(added is None))
    for shard in sorted(missing):
        recovery.note(site, shard, "runs")
    return total


def mend(site: Site, run: LedgerRun) -> int | None:
    """Put one run back where supervisors look, if it is not there. None: the store does not have it."""
    added = site.store.restoring.mend_due(RunRef(run.run_id, run.session))
    if isinstance(added, UnknownRun):
        return None
    if added:
        with identity(run_id=run.run_id):
            emit(recovered.RunMended(added))
    return added
