"""What can go wrong on one machine; part of the tree in orchestrator.errors."""

from orchestrator.errors import MandorError


class EmbeddedServerError(MandorError):
    """The embedded server could not be found, started, reached or stopped."""

    kind = "embedded_server"


class ChildFailed(MandorError):
    """A child process did not start, ended before it was ready, or was not ready in time."""

    kind = "child_failed"
