"""Which role a worker has, by the queues it consumes, and where it may be asked."""

from collections.abc import Collection
from typing import Final

from orchestrator import names
from orchestrator.settings import Settings, is_named

ROLES: Final = ("steps", "planner", "control", "supervise", "deliver")
EXPORTER: Final = "exporter"
_QUEUES: Final = {
    "steps": "steps",
    "plan": "planner",
    "control": "control",
    "supervise": "supervise",
    "deliver": "deliver",
}


def role_of(queues: Collection[str], prefix: str) -> str:
    """The first role whose queue is consumed; a worker of queues that only actions name runs steps."""
    return next((role for name, role in _QUEUES.items() if names.queue(prefix, name) in queues), "steps")


def does(queues: Collection[str], prefix: str, name: str) -> bool:
    """Whether a worker of these queues consumes ours of that name."""
    return names.queue(prefix, name) in queues


def port_of(given: Settings, role: str) -> int:
    """Its port; 0: none."""
    return int(getattr(given, f"{role}_port"))


def is_port_named(role: str) -> bool:
    """Whether somebody wants this very port."""
    return is_named(f"{role}_port")


def variable_of(role: str) -> str:
    """The setting that names its port."""
    return f"MANDOR_{role.upper()}_PORT"
