"""What commands work with, made when first asked for, so that `--help` and `plan validate` need no service."""

import difflib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import click

from orchestrator import settings as configuration
from orchestrator.cli import output
from orchestrator.errors import ConfigError, LedgerMissing
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.decisions import Desk
    from orchestrator.following import Follower
    from orchestrator.ledger import Ledger
    from orchestrator.lookup import Lookup
    from orchestrator.store import Store

LEDGER_PATIENCE_S = 5.0  # a person waits for the answer


@dataclass
class Services:
    """The settings of this process and the services they name."""

    settings: Settings

    @cached_property
    def ledger(self) -> "Ledger":
        """The ledger; not yet opened."""
        from orchestrator.ledger import open_ledger

        elsewhere = self.settings.effects_urls.split()
        return open_ledger(self.settings.ledger, patience_s=LEDGER_PATIENCE_S, effects_urls=elsewhere)

    @cached_property
    def store(self) -> "Store":
        """The state store, checked against the ledger's epoch at each call."""
        from orchestrator.store import open_store

        epoch = self.ledger.epoch(self.settings.namespace)
        if epoch is None:
            raise LedgerMissing(
                f"the ledger has no epoch for the namespace {self.settings.namespace}",
                hint="run `mandor ledger upgrade`",
            )
        if epoch.shards != self.settings.shards:
            message = f"this installation has {epoch.shards} shards, not {self.settings.shards}"
            raise ConfigError(message, path="MANDOR_SHARDS", hint=f"set MANDOR_SHARDS={epoch.shards}")
        return open_store(self.hasty, epoch.epoch)

    @cached_property
    def hasty(self) -> Settings:
        """The settings for a store that a person waits for: all tries of a call have the time of a worker's one."""
        from orchestrator.store.scripts import TRIES

        return self.settings.model_copy(update={"store_timeout_s": self.settings.store_timeout_s / TRIES})

    @cached_property
    def lookup(self) -> "Lookup":
        """Reads runs from both."""
        from orchestrator.lookup import Lookup

        return Lookup(self.ledger, self.store)

    def follower(self, run_id: str) -> "Follower":
        """Follows one run. NotFound: nobody accepted it."""
        from orchestrator.following import Follower

        return Follower(self.lookup, self.store, run_id)

    @cached_property
    def desk(self) -> "Desk":
        """Where people's decisions are made."""
        from orchestrator import app as celery_app
        from orchestrator.decisions import Desk

        celery_app.check_client()
        return Desk(celery_app.app, self.store, self.ledger)

    @cached_property
    def client(self) -> "Client":
        """Submits runs."""
        from orchestrator.client import Client

        return Client(self.settings)


def services() -> Services:
    """The services of this call. ConfigError when a setting is wrong."""
    context = click.get_current_context().find_root()
    if not isinstance(context.obj, Services):
        warn_of_unknown_names()
        context.obj = Services(configuration.read_settings())
    return context.obj


def warn_of_unknown_names() -> None:
    """A mistyped variable changes nothing; saying so is all that helps."""
    for name in configuration.unknown_names():
        close = similar(name)
        output.note(f"warning: no setting is called {name}" + (f"; did you mean {close}?" if close else ""))


def similar(name: str) -> str | None:
    """The setting that a mistyped name was probably meant for."""
    known = [configuration.env_name(field) for field in Settings.model_fields]
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.75)), None)
