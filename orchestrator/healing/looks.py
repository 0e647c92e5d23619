"""Looks at the services that a process needs: short, with connections of their own, and repeated for ever."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from orchestrator import names
from orchestrator.deliveries.deliver import keys_of
from orchestrator.errors import BrokerUnavailable, LedgerMissing
from orchestrator.healing import passes
from orchestrator.healing.checks import Fault, Look, fault_of
from orchestrator.ledger import Ledger, open_ledger
from orchestrator.recovery import verdicts
from orchestrator.settings import Settings
from orchestrator.store import Store, open_store

PATIENCE_S: Final = 1.0
GROUP: Final = "mandor.health"
TAKEN_OVER: Final = (
    "workers wait, and supervisors take the server over; without supervisors `mandor ledger verify` does"
)
BUILT_AGAIN: Final = (
    "bring back the server that has the data, if it is another; workers wait, and supervisors build the shards again "
    "from the ledger; without supervisors `mandor ledger restore` does"
)


class Services:
    """Store and ledger for looks alone: they give up soon, and nobody else waits for them."""

    def __init__(self, given: Settings, patience_s: float = PATIENCE_S) -> None:
        self.settings = given.model_copy(update={"store_timeout_s": min(given.store_timeout_s, patience_s)})
        self.ledger: Ledger = open_ledger(given.ledger, patience_s=patience_s, effects_urls=given.effects_urls.split())

    @cached_property
    def anonymous(self) -> Store:
        """A store that is only asked whether it answers."""
        return open_store(self.settings, "")

    @cached_property
    def store(self) -> Store:
        """The store of the ledger's epoch; raises what stands in the way."""
        epoch = self.ledger.epoch(self.settings.namespace)
        if epoch is None:
            message = f"the ledger knows no namespace {self.settings.namespace}"
            raise LedgerMissing(message, hint="run `mandor ledger upgrade`")
        return open_store(self.settings, epoch.epoch)

    # ---- the looks

    def look_at_store(self) -> None:
        """StoreUnavailable: it does not answer."""
        self.anonymous.now_ms()

    def look_at_ledger(self) -> None:
        """LedgerUnavailable, LedgerMissing: it does not answer, or is not ours."""
        self.ledger.check_schema()

    def look_at_epoch(self) -> Fault | None:
        """Is the store the one that the ledger remembers?"""
        states = shard_states(self.store)
        if states["lost"]:
            text = f"{states['lost']} shards know nothing of this installation: the store has lost its memory"
            return Fault(text, BUILT_AGAIN)
        if states["moved"]:
            return Fault(f"{states['moved']} shards were verified for another server, or before a restart", TAKEN_OVER)
        return None

    def look_at_broker(self) -> None:
        """BrokerUnavailable: it does not answer."""
        queue_depth(self.settings, "control")

    def look_at_secrets(self) -> None:
        """ConfigError: callbacks are owed, and nothing is there to sign them with. Who has none needs no secret."""
        if self.ledger.deliveries.is_any_owed(self.settings.namespace):
            keys_of(self.settings)

    def look_at_passes(self) -> Fault | None:
        """Do supervisors pass?"""
        return passes.late(passes.ages_s(self.store), self.settings.sweep_s)


def of_services(services: Services) -> dict[str, Look]:
    """What every process needs."""
    return {
        "store": services.look_at_store,
        "epoch": services.look_at_epoch,
        "ledger": services.look_at_ledger,
        "broker": services.look_at_broker,
    }


def shard_states(store: Store) -> Counter[str]:
    """How many shards are `ours`, `moved` to a server that nobody has verified, or `lost`."""
    states: Counter[str] = Counter(ours=0, moved=0, lost=0)
    for facts in store.admin.shards().values():
        word = verdicts.word_of(store.scripts.epoch, facts)
        states[word if word in states else "lost"] += 1
    return states


def queue_depth(given: Settings, name: str) -> int:
    """Messages ready in one of our queues. BrokerUnavailable."""
    from orchestrator import dispatch
    from orchestrator.app import app

    try:
        return dispatch.queue_depth(app, names.queue(given.prefix, name))
    except dispatch.broker_errors(app) as error:
        raise BrokerUnavailable(f"the broker does not answer: {error}", hint="is it running?") from None


# ---- those of others


def plugins() -> Iterator[tuple[str, Look]]:
    """What installed distributions look at, under the names of their entry points."""
    return of_points(entry_points(group=GROUP))


def of_points(points: Iterable[EntryPoint]) -> Iterator[tuple[str, Look]]:
    """The same of these entry points."""
    for point in sorted(points, key=lambda point: point.name):
        yield point.name, _Plugin(point)


class _Plugin:
    """A callable without arguments: None, or a text that says what is wrong; or it raises. Imported when called."""

    def __init__(self, point: EntryPoint) -> None:
        self._point = point
        self._call: Callable[[], object] | None = None

    def __call__(self) -> Fault | None:
        if self._call is None:
            self._call = self._point.load()
        said = self._call()
        return None if said is None else fault_of(str(said))
