"""How what two layers say of one field of a policy becomes one value: a function for each field. Pure.

    common   both sets' members; null names every member          associative, commutative, idempotent
    least    the smaller number                                    associative, commutative, idempotent
    most     the larger number, where waiting longer asks less     associative, commutative, idempotent
    stronger the sandbox that holds more                           associative, commutative, idempotent
    all_of   every name that either says                           associative, commutative, idempotent
    either   true, once anybody has said so                        associative, commutative, idempotent
    first    the first word; no word is narrower than another      associative, idempotent

None of them gives more than the earlier layer did. A layer that asks for what it does not get is refused, not cut:
`narrowed` says so by raising. Only what `all_of` joins is never asked for too much.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from schemas.canonical import canonical_text

Meet = Callable[[Any, Any], Any]


class PolicyWidened(ValueError):
    """A layer asked for more than the layers before it allow. layer: who asked, as a word for people."""

    def __init__(self, field: str, base: Any, asked: Any, layer: str) -> None:
        super().__init__(f"{field}: the {layer} asks for {plain(asked)}, allowed is {plain(base)}")
        self.field = field
        self.base = base
        self.asked = asked
        self.layer = layer


def common(one: frozenset[Any] | None, other: frozenset[Any] | None) -> frozenset[Any] | None:
    """What is in both; null has everything in it."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def all_of(one: frozenset[Any], other: frozenset[Any]) -> frozenset[Any]:
    """What is in either."""
    return one | other


def either(one: bool, other: bool) -> bool:
    """Whether anybody has said so."""
    return one or other


def least(one: float, other: float) -> float:
    """The smaller."""
    return min(one, other)


def most(one: float, other: float) -> float:
    """The larger."""
    return max(one, other)


def stronger(one: Any, other: Any) -> Any:
    """The sandbox that holds more."""
    return one if one.is_at_least(other) else other


def first(one: Any, other: Any) -> Any:
    """The earlier word, if there is one."""
    return other if one is None else one


FIELDS: Final[Mapping[str, Meet]] = {
    "actions": common,
    "effects": common,
    "max_steps": least,
    "max_parallel": least,
    "deadline_s": least,
    "stop_grace_s": least,
    "result_bytes": least,
    "inputs_bytes": least,
    "plan_bytes": least,
    "file_bytes": least,
    "workspace_bytes": least,
    "workspace_files": least,
    "protected_names": all_of,
    "record_bytes": least,
    "record_keys": least,
    "record_depth": least,
    "wait_s": least,
    "min_rung": stronger,
    "command_time_s": least,
    "command_cpu_s": least,
    "command_memory_bytes": least,
    "command_processes": least,
    "command_output_bytes": least,
    "command_file_bytes": least,
    "workspace_keep_s": least,
    "artifacts": all_of,
    "artifact_bytes": least,
    "on_failure": first,
    "require_compensation": either,
    "approvals": all_of,
    "on_doubt": first,
}
LIMITS: Final[Mapping[str, Meet]] = {
    "attempts": least,
    "backoff_s": most,
    "backoff_max_s": most,
    "timeout_s": least,
    "lease_s": least,
}
QUOTAS: Final[Mapping[str, Meet]] = {"steps": least, "result_bytes": least}


def narrowed(meet: Meet, path: str, base: Any, asked: Any, layer: str) -> Any:
    """What both allow. PolicyWidened: the layer asks for more than that."""
    met = meet(base, asked)
    if met != asked and meet is not all_of:
        raise PolicyWidened(path, base, asked, layer)
    return met


def plain(value: Any) -> str:
    """A value of a policy, as it is told to people."""
    if isinstance(value, frozenset):
        return canonical_text(sorted(value))
    return str(value).lower() if isinstance(value, bool) else str(value)
