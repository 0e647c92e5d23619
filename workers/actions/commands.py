"""run_command: a shell command, in a sandbox only. Without a rung that fences it in, the step is refused."""

from typing import NoReturn

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.admission import CommandLine
from workers.context import Context
from workers.outcomes import NoEffect, PermanentError
from workers.registry import action

DEFAULT_TIMEOUT_MS = 5_000
MAX_TIMEOUT_MS = 30_000


class NoSandboxRung(PermanentError, NoEffect):
    """No sandbox of the strength that policy asks for is at hand, so nothing was started."""

    kind = "no_sandbox_rung"


class RunCommand(BaseModel):
    """command: one line for a POSIX shell; timeout_ms: after this the whole command is killed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    command: CommandLine = Field(description="a command line for a POSIX shell, run in the workspace")
    timeout_ms: int = Field(DEFAULT_TIMEOUT_MS, ge=1, le=MAX_TIMEOUT_MS, description="time limit in milliseconds")


class CommandResult(BaseModel):
    """Head and tail are the bounded first and last part of a stream, decoded with replacement characters."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    exit_code: int
    stdout_head: str
    stdout_tail: str
    stderr_head: str
    stderr_tail: str
    duration_ms: int
    rung: str


@action("run_command", effect="once", attempts=1)
def run_command(_: RunCommand, ctx: Context) -> CommandResult:
    """Run a shell command in the run's workspace."""
    refuse(ctx)


def refuse(ctx: Context) -> NoReturn:
    """Say that nothing was run, and why."""
    ctx.log.warning("command.refused", reason=NoSandboxRung.kind)
    raise NoSandboxRung(
        "this worker has no sandbox to run commands in",
        hint="offer the work as an action of your own, or leave run_command out of the policy's actions",
    )
