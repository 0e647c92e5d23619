"""What is driven, and who looks at the world outside afterwards."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, TypeAlias

from orchestrator.errors import ConfigError
from workers.faults import example

EXAMPLE: Final = "workers.faults.example"
NAME: Final = "{run}"  # what stands in a context for the name of its run
Audit: TypeAlias = Callable[[Sequence[str]], Iterable[str]]  # run ids of a scenario -> what is wrong outside


@dataclass(frozen=True, slots=True)
class Driven:
    """A planner or a ready plan, in this context. context None: one for each run, made up. A planner's may name the
    run; a ready plan is made for one that does not change.
    """

    planner: str | None = example.PLANNER
    plan: str | None = None
    context: dict[str, Any] | None = None

    def fields(self, name: str) -> dict[str, Any]:
        """The submission of a run of this name."""
        made = {"planner": self.planner, "plan": self.plan, "context": self._context(name)}
        return {key: value for key, value in made.items() if value is not None}

    def _context(self, name: str) -> Any:
        if self.context is None:
            return {"order": name}
        return self.context if self.plan else _naming(self.context, name)


def _naming(value: Any, name: str) -> Any:
    match value:
        case str():
            return value.replace(NAME, name)
        case list():
            return [_naming(one, name) for one in value]
        case dict():
            return {key: _naming(one, name) for key, one in value.items()}
    return value


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
