"""A whole installation inside one test: settings, ledger, store and a Celery app of its own, on a real server."""

import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from celery import Celery

from orchestrator import settings as configuration
from orchestrator import verification
from orchestrator.ledger import Ledger, open_ledger
from orchestrator.settings import Settings
from orchestrator.store import Store, open_store
from tests.support.environment import ROOT


@dataclass(frozen=True)
class Installation:
    """What the functions of the control plane are given."""

    app: Celery
    store: Store
    ledger: Ledger
    settings: Settings

    def queue(self, name: str) -> str:
        """The broker's name of one of our queues."""
        return self.settings.queue_prefix + name


@contextmanager
def celery_app(redis_url: str, **settings: object) -> Iterator[Celery]:
    """Our Celery configuration under these settings, in an app that no other test sees."""
    values = {"redis_url": redis_url, **settings}
    with environment({f"MANDOR_{name.upper()}": str(value) for name, value in values.items()}):
        app = Celery("mandor-test", set_as_current=False)
        app.config_from_object(_configuration())
        try:
            yield app
        finally:
            app.close()


@contextmanager
def installation(redis_url: str, home: Path, **settings: object) -> Iterator[Installation]:
    """Everything set up and ready to take submissions."""
    with celery_app(redis_url, home=home, **settings) as app:
        given = configuration.settings()
        ledger = open_ledger(given.ledger)
        upgraded = verification.upgrade(ledger, given)
        store = open_store(given, upgraded.epoch)
        try:
            yield Installation(app, store, ledger, given)
        finally:
            store.close()


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """These variables, and settings read from them, inside the block only."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    configuration.settings.cache_clear()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        configuration.settings.cache_clear()


def _configuration() -> ModuleType:
    """celeryconfig.py, read again: it looks at the settings when it is imported."""
    spec = importlib.util.spec_from_file_location("celeryconfig_of_a_test", ROOT / "celeryconfig.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
