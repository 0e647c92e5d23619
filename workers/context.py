"""What an action is handed besides its params."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from structlog.typing import FilteringBoundLogger

from orchestrator.ledger import Ledger
from schemas.policy import Policy
from workers.outcomes import (
    AlreadyApplied,
    AttemptStopped,
    LeaseLost,
    NoEffect,
    PermanentError,
    RunEnding,
    Snooze,
    TimeUp,
    WorkerStopping,
)
from workers.workspace import Workspace

__all__ = [
    "AlreadyApplied",
    "AttemptStopped",
    "Context",
    "LeaseLost",
    "NoEffect",
    "PermanentError",
    "RunEnding",
    "Services",
    "Snooze",
    "StepIdentity",
    "TimeUp",
    "WorkerStopping",
]


@dataclass(frozen=True, slots=True)
class StepIdentity:
    """Who is at work. attempt counts from 1; fencing_token only grows within a run. in_doubt: see Context."""

    run_id: str
    session_id: str | None
    step_id: str
    attempt: int
    fencing_token: int
    idempotency_key: str
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class Services:
    """What stands behind a context: one function for each thing that reaches out of the process."""

    workspace: Callable[[], Workspace]
    scratch: Callable[[], Path]
    result: Callable[[str], Any]
    effect: Callable[[Any, Any], None]
    check: Callable[[], None]
    ledger: Callable[[], Ledger]
    log: Callable[[], FilteringBoundLogger]


class Context:
    """One attempt of one step, as its action sees it. Not to be kept: it is of no use after the attempt."""

    def __init__(self, identity: StepIdentity, policy: Policy, services: Services) -> None:
        self._identity = identity
        self._policy = policy
        self._services = services

    @property
    def run_id(self) -> str:
        return self._identity.run_id

    @property
    def session_id(self) -> str | None:
        """The label the submitter gave, or None. Nothing may be keyed by it."""
        return self._identity.session_id

    @property
    def step_id(self) -> str:
        return self._identity.step_id

    @property
    def attempt(self) -> int:
        """Which try this is, from 1."""
        return self._identity.attempt

    @property
    def fencing_token(self) -> int:
        """Grows with every claim in the run; a store of yours that remembers it can refuse an older holder."""
        return self._identity.fencing_token

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this step, unless a person gives it a new one: what a `keyed` action shows
        the other side. A compensation has another one: undoing is an effect of its own.
        """
        return self._identity.idempotency_key

    @property
    def in_doubt(self) -> bool:
        """In a compensation: nobody knows whether the step's effect happened, so look before you undo it."""
        return self._identity.in_doubt

    @property
    def policy(self) -> Policy:
        """The frozen policy this run was accepted under."""
        return self._policy

    @property
    def log(self) -> FilteringBoundLogger:
        """A logger whose lines carry the step's identity."""
        return self._services.log()

    @cached_property
    def workspace(self) -> Workspace:
        """The run's own folder, made at first use."""
        return self._services.workspace()

    @cached_property
    def scratch(self) -> Path:
        """A folder of this attempt alone, made at first use, and gone when the attempt has ended, however it ends."""
        return self._services.scratch()

    def result(self, step_id: str) -> Any:
        """The result of a step this one needs, directly or through others; parsed JSON.

        KeyError for any other step: what this step did not wait for may not be there the next time.
        """
        return self._services.result(step_id)

    def effect(self, connection: Any, result: Any) -> None:
        """Put the effect row of a `transactional` step into your own open transaction, with the step's result; in its
        compensation with None.

        Call it before you commit. AlreadyApplied: an earlier attempt has committed, roll back. LeaseLost: this
        claim was ended, roll back. Let either pass.
        """
        self._services.effect(connection, result)

    def ledger(self) -> Ledger:
        """The installation's ledger; its `begin()` opens the transaction that an effect and its row share."""
        return self._services.ledger()

    def check(self) -> None:
        """Raise AttemptStopped if the lease is lost, the time is up, the run is ending or the worker stops."""
        self._services.check()
