"""Running everything on one machine: the embedded server, and child processes that do not outlive their starter."""

from orchestrator.local.child import Child, Command
from orchestrator.local.errors import ChildFailed, EmbeddedServerError
from orchestrator.local.runner import Runner
from orchestrator.local.server import EmbeddedServer

__all__ = ["Child", "ChildFailed", "Command", "EmbeddedServer", "EmbeddedServerError", "Runner"]
