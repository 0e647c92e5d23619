"""What is driven, and who looks at the world outside afterwards."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, TypeAlias

from orchestrator.errors import ConfigError
from workers.faults import example

EXAMPLE: Final = "workers.faults.example"
Audit: TypeAlias = Callable[[Sequence[str]], Iterable[str]]  # run ids of a scenario -> what is wrong outside


@dataclass(frozen=True, slots=True)
class Driven:
    """A planner or a ready plan, in this context. context None: one for each run, made up."""

    planner: str | None = example.PLANNER
    plan: str | None = None
    context: dict[str, Any] | None = None

    def fields(self, name: str) -> dict[str, Any]:
        """The submission of a run of this name."""
        context = {"order": name} if self.context is None else self.context
        made = {"planner": self.planner, "plan": self.plan, "context": context}
        return {key: value for key, value in made.items() if value is not None}


def nobody(_: Sequence[str]) -> Iterable[str]:
    """Looks at nothing."""
    return ()


def find_audit(name: str | None) -> Audit:
    """The function that `module:function` names. ConfigError: there is none."""
    if name is None:
        return nobody
    module, colon, function = name.partition(":")
    if not colon:
        raise ConfigError(f"{name!r} names no function", path="--audit", hint="give module:function")
    try:
        found: Audit = getattr(import_module(module), function)
    except Exception as wrong:  # whatever a user's module raises when it is imported
        raise ConfigError(f"cannot use {name!r}: {wrong}", path="--audit", hint="give module:function") from wrong
    return found
