"""Every refusal and failure the project raises, one tree.

MandorError                      kind, message, path, hint
├── ConfigError                  a setting, or the relation of two; names both and the mend
├── SubmissionRefused            the submission does not fit its model (issues with paths)
│   └── SubmissionConflict       same request_id, other submission
├── PayloadDrift                 (orchestrator.admission) a planner's answer the contract does not allow
├── StoreError
│   ├── StoreUnavailable         Redis did not answer within the knowing retries
│   ├── StoreMoved               this is another server than the one whose state was verified
│   ├── StoreAmnesia             this server does not remember our epoch
│   ├── NotBuiltYet              this run is being built again from the ledger
│   └── StoreRefused             the server holds too many undrained entries, or the run is malformed
├── LedgerError
│   ├── LedgerUnavailable        the database did not answer
│   ├── LedgerMissing            no schema, or another revision of it
│   └── EffectRefused            an effect row that belongs to another step token
├── Superseded                   another builds this shard again, or it is another shard by now
├── DecisionRefused              a person's decision that the run, as it is, cannot follow
└── NotFound                     no such run, step or letter
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


class MandorError(Exception):
    """Base of the tree.

    kind: one stable word for programs; message: what is wrong; path: the field or setting it is about;
    hint: what to do next. All three are in `args`, from which Celery's JSON results and pickle make the error again: a
    subclass whose constructor takes something else says there what it takes. done: what a command had done by then.
    """

    kind = "error"
    done: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, message: str, path: str | None = None, hint: str | None = None) -> None:
        self.message = message
        self.path = path
        self.hint = hint
        super().__init__(*self._said())

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        mend = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.message}{mend}"

    def also(self, said: str) -> None:
        """Add to the hint."""
        ours = self.args == self._said()
        self.hint = f"{self.hint}; {said}" if self.hint else said
        if ours:
            self.args = self._said()

    def _said(self) -> tuple[str | None, ...]:
        bare = self.path is None and self.hint is None
        return (self.message,) if bare else (self.message, self.path, self.hint)

    def as_json(self) -> dict[str, str | None]:
        """The shape every command prints under `--json`."""
        return {"kind": self.kind, "message": self.message, "path": self.path, "hint": self.hint}


class ConfigError(MandorError):
    kind = "config"


class SubmissionRefused(MandorError):
    """The message names every path that is wrong, for callers who get nothing else; path is the first of them.

    faults: each as path, kind and message, where it was refused in this process; the message says the same.
    """

    kind = "submission_refused"
    faults: tuple[tuple[str, str, str], ...] = ()

    def errors(self) -> list[dict[str, str | None]]:
        """Each fault as a JSON object; a path of None stands for the submission as a whole."""
        faults = self.faults or ((self.path or "", self.kind, self.message),)
        return [{"path": path or None, "kind": kind, "message": message} for path, kind, message in faults]

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class SubmissionConflict(SubmissionRefused):
    kind = "conflict"


class DecisionRefused(MandorError):
    kind = "decision_refused"


class NotFound(MandorError):
    kind = "not_found"


class StoreError(MandorError):
    kind = "store"


class StoreUnavailable(StoreError):
    kind = "store_unavailable"


class StoreMoved(StoreError):
    kind = "store_moved"


class StoreAmnesia(StoreError):
    kind = "store_amnesia"


class NotBuiltYet(StoreError):
    kind = "not_built_yet"


class StoreRefused(StoreError):
    kind = "store_refused"


class LedgerError(MandorError):
    kind = "ledger"


class LedgerUnavailable(LedgerError):
    kind = "ledger_unavailable"


class LedgerMissing(LedgerError):
    kind = "ledger_missing"


class EffectRefused(LedgerError):
    kind = "effect_refused"


class Superseded(MandorError):
    """Nothing was written; whoever was told looks anew."""

    kind = "superseded"


class BrokerUnavailable(MandorError):
    kind = "broker_unavailable"


class NoAnswer(MandorError):
    kind = "no_answer"
