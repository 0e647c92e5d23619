"""The state of runs in Redis or Valkey: the only package that speaks to it.

connection -> scripts (the Lua files' loader) -> guard (claims), runs (other writes), views (reads), admin (identity),
stream (what the ledger is still to be told), restoring (a shard that forgot)
"""

from orchestrator.settings import Settings
from orchestrator.store.admin import Admin
from orchestrator.store.connection import Links
from orchestrator.store.guard import Guard
from orchestrator.store.keys import Keys
from orchestrator.store.restoring import Restoring
from orchestrator.store.runs import Runs
from orchestrator.store.scripts import Scripts
from orchestrator.store.stream import Stream
from orchestrator.store.views import Views


class Store:
    """One installation's state store. Opens no connection before the first call; safe over fork and threads."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts
        self.keys = scripts.keys
        self.guard = Guard(scripts)
        self.runs = Runs(scripts)
        self.views = Views(scripts)
        self.admin = Admin(scripts)
        self.stream = Stream(scripts)
        self.restoring = Restoring(scripts)

    @property
    def shards(self) -> int:
        return self.keys.shards

    def now_ms(self) -> int:
        """The server's clock."""
        seconds, micros = self.scripts.ask("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def close(self) -> None:
        self.scripts.links.close()


def open_store(settings: Settings, epoch: str) -> Store:
    """The store of these settings. epoch: the reference epoch of the ledger."""
    constants = {
        "check_ms": int(settings.dispatch_check_s * 1000),
        "ttl_ms": int(settings.finished_ttl_s * 1000),
        "lease_ms": int(settings.lease_s * 1000),
    }
    links = Links(settings.redis_url, settings.store_timeout_s)
    return Store(Scripts(links, Keys(settings.namespace, settings.shards), epoch, constants))


def open_server(settings: Settings, url: str) -> Admin:
    """Another server that speaks Redis, of which nothing is asked but what it tells about itself."""
    links = Links(url, settings.store_timeout_s)
    return Admin(Scripts(links, Keys(settings.namespace, settings.shards), "", {}))


__all__ = ["Store", "open_server", "open_store"]
