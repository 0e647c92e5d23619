"""Is the state store the one the ledger remembers? Asked when an installation is set up and after a server came back.

    upgrade   the ledger's schema and epoch, then an identity for every shard that has none
    verify    after the server was started again or exchanged: its shards belong to it from now on, with fences far
              ahead of any that was given before

Both look for the ledger's open runs first. One that has a plan and is not there was lost with all that its steps have
done: refused, and nothing is changed. One without a plan has done nothing yet, and is simply created again.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator import submission
from orchestrator.errors import ConfigError, StoreAmnesia
from orchestrator.ledger import Ledger, LedgerRun
from orchestrator.settings import Settings
from orchestrator.store import Store, open_store
from schemas.ids import RunRef

PAGE: Final = 500
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
    """epoch: the reference; shards: those that were given their identity just now; adopted: runs created again."""

    epoch: str
    shards: int
    adopted: int


def upgrade(ledger: Ledger, settings: Settings) -> Upgraded:
    """Bring ledger and store to where a worker may start. Repeated, it changes nothing.

    StoreAmnesia: a shard knows nothing, and the ledger has runs under way that lie there.
    """
    ledger.upgrade()
    epoch = ledger.create_epoch(settings.namespace, settings.shards)
    store = open_store(settings, epoch.epoch)
    blank = [shard for shard in range(store.shards) if store.admin.shard(shard).epoch is None]
    missing = [run for run in open_runs_in(ledger, store, blank) if not is_there(store, run)]
    refuse_losses(missing)
    for shard in blank:
        store.admin.init_shard(shard)
    return Upgraded(epoch.epoch, len(blank), adopt(store, settings, missing))


def verify(ledger: Ledger, store: Store, settings: Settings) -> Verified:
    """Hold the store against the ledger.

    StoreAmnesia: a shard or a run under way is missing. ConfigError: a shard belongs to somebody else.
    """
    moved = [shard for shard in range(store.shards) if has_moved(store, shard)]
    expected = list(open_runs_in(ledger, store, moved))
    missing = [run for run in expected if not is_there(store, run)]
    refuse_losses(missing)
    fences = sum(store.admin.accept_server(shard) for shard in moved)
    return Verified(len(expected), adopt(store, settings, missing), len(moved), fences)


def has_moved(store: Store, shard: int) -> bool:
    """Whether the shard was last verified for another server. Raises where it is not ours at all."""
    facts = store.admin.shard(shard)
    if facts.epoch is None:
        raise StoreAmnesia(
            f"shard {shard} has no memory of this installation",
            hint="is MANDOR_REDIS_URL the right server? if so, run `mandor ledger upgrade`",
        )
    if facts.epoch != store.scripts.epoch:
        raise ConfigError(
            f"shard {shard} belongs to another installation",
            path="MANDOR_NAMESPACE",
            hint="two installations share this server, or its data is an old copy: use another namespace or server",
        )
    return facts.server != facts.our_server


def open_runs_in(ledger: Ledger, store: Store, shards: Collection[int]) -> Iterator[LedgerRun]:
    """Runs of these shards that have no end in the ledger."""
    return (run for run in open_runs(ledger) if store.keys.shard_of(run.run_id) in shards) if shards else iter(())


def open_runs(ledger: Ledger) -> Iterator[LedgerRun]:
    """All runs without an end, page by page."""
    after: str | None = None
    while page := ledger.open_runs(after, PAGE):
        yield from page
        after = page[-1].run_id


def is_there(store: Store, run: LedgerRun) -> bool:
    """Whether the store has the run."""
    return store.views.run(RunRef(run.run_id, run.session)) is not None


def refuse_losses(missing: list[LedgerRun]) -> None:
    """StoreAmnesia if a run that has a plan is missing."""
    lost = [run.run_id for run in missing if run.plan_hash is not None]
    if lost:
        names = ", ".join(lost[:SHOWN]) + ("…" if len(lost) > SHOWN else "")
        raise StoreAmnesia(
            f"{len(lost)} runs that were under way are not in the state store ({names})",
            hint="bring back the server's data (its append-only file) and try again",
        )


def adopt(store: Store, settings: Settings, missing: list[LedgerRun]) -> int:
    """Create runs that only the ledger knows. Their plan messages are due, and a supervisor sends them."""
    for run in missing:
        store.runs.create_run(RunRef(run.run_id, run.session), submission.to_create(run, settings))
    return len(missing)
