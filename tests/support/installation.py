"""A whole installation inside one test: settings, ledger, store and a Celery app of its own, on a real server."""

import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from celery import Celery

from orchestrator import settings as configuration
from orchestrator.ledger import Ledger, open_ledger
from orchestrator.recovery import verification
from orchestrator.settings import Settings
from orchestrator.store import Store, open_store


@dataclass(frozen=True)
class Installation:
    """What the functions of the control plane are given."""

    app: Celery
    store: Store
    ledger: Ledger
    settings: Settings
    variables: Mapping[str, str] = field(default_factory=dict)

    def in_force(self) -> AbstractContextManager[None]:
        """This process's own settings are those of this installation, inside the block."""
        return environment(self.variables)

    def queue(self, name: str) -> str:
        """The broker's name of one of our queues."""
        return self.settings.prefix + name


@contextmanager
def celery_app(redis_url: str, **settings: object) -> Iterator[Celery]:
    """Our Celery configuration under these settings, in an app that no other test sees."""
    with environment(_variables(redis_url=redis_url, **settings)):
        app = _app()
        try:
            yield app
        finally:
            app.close()


@contextmanager
def installation(redis_url: str, home: Path, **settings: object) -> Iterator[Installation]:
    """Everything set up and ready to take submissions; its settings are this process's own inside the block."""
    with lasting_installation(redis_url, home, **settings) as made, made.in_force():
        yield made


@contextmanager
def lasting_installation(redis_url: str, home: Path, **settings: object) -> Iterator[Installation]:
    """The same for many tests: each has it `in_force` for itself, and the tests in between know nothing of it."""
    variables = _variables(redis_url=redis_url, home=home, **settings)
    with environment(variables):
        app = _app()
        given = configuration.settings()
        ledger = open_ledger(given.ledger, effects_urls=given.effects_urls.split())
        upgraded = verification.upgrade(ledger, given)
    store = open_store(given, upgraded.epoch)
    try:
        yield Installation(app, store, ledger, given, variables)
    finally:
        store.close()
        app.close()


def _variables(**settings: object) -> dict[str, str]:
    return {f"MANDOR_{name.upper()}": str(value) for name, value in settings.items()}


def _app() -> Celery:
    app = Celery("mandor-test", set_as_current=False)
    app.config_from_object(_configuration())
    return app


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
    ours = importlib.util.find_spec("celeryconfig")
    assert ours is not None
    assert ours.origin is not None
    spec = importlib.util.spec_from_file_location("celeryconfig_of_a_test", ours.origin)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
