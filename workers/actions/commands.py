"""run_command: a shell command, in a sandbox only. Without a rung that fences it in, the step is refused."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.admission import CommandLine
from orchestrator.settings import env_name, settings
from orchestrator.telemetry import commands as facts
from orchestrator.telemetry import logs
from schemas.policy import Policy, Rung
from workers.context import Context
from workers.filling import Filling
from workers.outcomes import AskedToWait, NoEffect, PermanentError
from workers.registry import action
from workers.sandbox import ladder
from workers.sandbox.host import Host
from workers.sandbox.jobs import (
    Ended,
    Exited,
    Flooded,
    Job,
    Limits,
    SandboxFailed,
    Signalled,
    TimedOut,
    TooHeavy,
)
from workers.sandbox.ownership import hand_to
from workers.sandbox.running import run
from workers.workspace import WorkspaceFault

DEFAULT_TIMEOUT_MS = 5_000
MAX_TIMEOUT_MS = 30_000
GRACE_S: Final = 1.0  # from SIGTERM to the end of everything, at the command's time limit
_SHELL: Final = ("/bin/sh", "-c")  # inside the sandbox; nothing outside goes through a shell
_KEPT_PARTS: Final = 4  # head and tail of two streams
_OTHER_PARTS: Final = 320  # bytes of a result's JSON without them, at most
_WIDEST: Final = 6  # characters of JSON that one byte may become
_SAID_BYTES: Final = 400
_TOO_LONG: Final = 7  # E2BIG
_NOT_STARTED: Final = "nothing was started"


class NoSandboxRung(PermanentError, NoEffect):
    """No sandbox of the strength that policy asks for is at hand, so nothing was started."""

    kind = "no_sandbox_rung"


class SandboxUnavailable(NoEffect, AskedToWait):
    """The sandbox could not be made this time, so nothing was started."""

    kind = "sandbox_failed"


class CommandTooLong(PermanentError, NoEffect):
    """The kernel takes no argument of this length, so nothing was started."""

    kind = "command_too_long"


class CommandFailed(PermanentError):
    """The command ended with another code than 0."""

    kind = "command_failed"


class CommandKilled(PermanentError):
    """A signal ended the command."""

    kind = "command_killed"


class CommandTimedOut(PermanentError):
    """The command was ended at its time limit."""

    kind = "timed_out"


class CommandFlooded(PermanentError):
    """The command was ended because it wrote more than policy allows."""

    kind = "command_flooded"


class CommandTooHeavy(PermanentError):
    """The command was ended because all of it together took more memory than policy allows."""

    kind = "command_too_heavy"


class RunCommand(BaseModel):
    """command: one line for a POSIX shell; timeout_ms: after this the whole command is killed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    command: CommandLine = Field(description="a command line for a POSIX shell, run in the workspace")
    timeout_ms: int = Field(DEFAULT_TIMEOUT_MS, ge=1, le=MAX_TIMEOUT_MS, description="time limit in milliseconds")


class CommandResult(BaseModel):
    """Head and tail are the bounded first and last part of a stream, decoded with replacement characters; *_bytes: how
    much there was in all. sandboxed: false where the operator lets commands run without a sandbox.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    exit_code: int
    stdout_head: str
    stdout_tail: str
    stdout_bytes: int
    stderr_head: str
    stderr_tail: str
    stderr_bytes: int
    duration_ms: int
    rung: str
    sandboxed: bool


def is_fenced(policy: Policy, done: CommandResult | None) -> bool:
    """Whether all of what it wrote is in the workspace: it was in a sandbox, or could only be in one."""
    return policy.min_rung != Rung.RLIMITS if done is None else done.sandboxed


# once more where it was not started, on what works by then
@action("run_command", effect="once", attempts=2, confined=is_fenced)
def run_command(params: RunCommand, ctx: Context) -> CommandResult:
    """Run a shell command in the run's workspace."""
    found = ladder.current(settings(), ctx.policy.min_rung)
    rung = found.choose(ctx.policy.min_rung) or _refuse(ctx)
    with _nothing_started():
        workspace = ctx.workspace.path
        filling = Filling(workspace, ctx.policy, ctx.check, _on(rung))
        filling.refuse()  # first: what is too full is not walked through to be handed over
        hand_to(workspace, found.host.uid, found.host.gid)
    job = Job((*_SHELL, params.command), workspace, _limits(params, ctx.policy))
    try:
        ended = _counted(rung, found.host, job, filling)
    except SandboxFailed as failed:
        raise _not_started(rung, failed, ctx.policy) from None
    result = _result(ended, rung, params, ctx.policy)
    filling.look_back()
    return result


def _counted(rung: Rung, host: Host, job: Job, filling: Filling) -> Ended:
    """Run it. One that a check ends is told of as any other; one that did not start is not."""
    began = time.monotonic()
    try:
        ended = run(rung, host, job, filling)
    except SandboxFailed:
        raise
    except BaseException:
        logs.emit(facts.CommandRun(rung, "ended", int(1000 * (time.monotonic() - began))))
        raise
    logs.emit(facts.CommandRun(rung, _word(ended), ended.duration_ms))
    return ended


def _limits(params: RunCommand, policy: Policy) -> Limits:
    return Limits(
        timeout_s=min(params.timeout_ms / 1000, policy.command_time_s),
        grace_s=GRACE_S,
        cpu_s=policy.command_cpu_s,
        memory_bytes=policy.command_memory_bytes,
        processes=policy.command_processes,
        kept_bytes=max(1, (policy.result_bytes_for("run_command") - _OTHER_PARTS) // (_KEPT_PARTS * _WIDEST)),
        output_bytes=policy.command_output_bytes,
        file_bytes=policy.command_file_bytes,
    )


# ---- nothing was started


def _refuse(ctx: Context) -> Any:
    """For good, unless what policy asks for has worked here before."""
    least = ctx.policy.min_rung
    if ladder.has_worked(least):
        ctx.log.warning("command.refused", reason=SandboxUnavailable.kind)
        message = f"no sandbox as strong as {least} works at the moment ({_said_by('min_rung')})"
        raise SandboxUnavailable(message, hint=_NOT_STARTED, retry_after_s=ladder.LOOK_EVERY_S)
    ctx.log.warning("command.refused", reason=NoSandboxRung.kind)
    raise NoSandboxRung(
        f"this worker has no sandbox as strong as {least} ({_said_by('min_rung')})",
        path="params.command",
        hint="see docs/sandbox.md, or leave run_command out of the policy's actions",
    )


@contextmanager
def _nothing_started() -> Iterator[None]:
    """Whatever the file system could not do before the command: it was not started, so there is no doubt."""
    try:
        yield
    except WorkspaceFault as fault:
        raise SandboxUnavailable(fault.message, hint=_NOT_STARTED) from None
    except OSError as fault:
        why = os.strerror(fault.errno or 0)
        raise SandboxUnavailable(f"the workspace could not be used: {why}", hint=_NOT_STARTED) from None


def _not_started(rung: Rung, failed: SandboxFailed, policy: Policy) -> NoEffect:
    if failed.doing == "exec" and failed.number == _TOO_LONG:
        return CommandTooLong(
            "the command is too long for this system", path="params.command", hint="put it into a file"
        )
    logs.emit(facts.SandboxFailed(rung, failed.doing, failed.number, failed.said))
    if failed.doing == "descriptors":  # that is no fault of the rung's
        return SandboxUnavailable(f"{failed.message}{_on(rung)}", hint=_NOT_STARTED)
    works = ladder.look_again(settings()).choose(policy.min_rung)
    return SandboxUnavailable(
        f"{failed.message}{_on(rung)}",
        hint=f"{_NOT_STARTED}; what works now was looked up again",
        retry_after_s=0.0 if works else ladder.LOOK_EVERY_S,
    )


# ---- something was


def _word(ended: Ended) -> str:
    match ended.end:
        case Exited():
            return "exit"
        case Signalled():
            return "signal"
        case TimedOut():
            return "timed_out"
        case Flooded():
            return "flooded"
    return "too_heavy"


def _result(ended: Ended, rung: Rung, params: RunCommand, policy: Policy) -> CommandResult:
    """The result of a command that ended with 0; any other is an error."""
    match ended.end:
        case Exited(code=0):
            return _success(ended, rung)
        case Exited(code=code):
            raise CommandFailed(f"the command ended with code {code}{_more(ended, rung)}")
        case Signalled(number=number):
            raise CommandKilled(f"signal {number} ended the command{_more(ended, rung)}")
        case TimedOut():
            raise _too_slow(ended, rung, params, policy)
        case Flooded():
            raise _too_loud(ended, rung, policy)
        case TooHeavy():
            raise _too_heavy(ended, rung, policy)


def _too_slow(ended: Ended, rung: Rung, params: RunCommand, policy: Policy) -> CommandTimedOut:
    """By the smaller of two limits, which it names."""
    if policy.command_time_s * 1000 < params.timeout_ms:
        limit, path = f"{policy.command_time_s:g} s ({_said_by('command_time_s')})", "params.command"
    else:
        limit, path = f"{params.timeout_ms} ms", "params.timeout_ms"
    return CommandTimedOut(f"the command was ended at its time limit, {limit}{_more(ended, rung)}", path=path)


def _too_loud(ended: Ended, rung: Rung, policy: Policy) -> CommandFlooded:
    total, most = ended.stdout.bytes + ended.stderr.bytes, policy.command_output_bytes
    return CommandFlooded(
        f"the command was ended after {total} bytes of output, at most {most} are allowed "
        f"({_said_by('command_output_bytes')}){_on(rung)}",
        path="params.command",
        hint="let it write into a file of the workspace",
    )


def _too_heavy(ended: Ended, rung: Rung, policy: Policy) -> CommandTooHeavy:
    return CommandTooHeavy(
        f"the command was ended: all of it together took more than {policy.command_memory_bytes} bytes of memory "
        f"({_said_by('command_memory_bytes')}){_more(ended, rung)}",
        path="params.command",
        hint="let fewer of its processes work at once, and keep large files in the workspace, not in /tmp",
    )


def _said_by(field: str) -> str:
    return f"{field} of the policy, {env_name(field)}"


def _success(ended: Ended, rung: Rung) -> CommandResult:
    return CommandResult(
        exit_code=0,
        stdout_head=_text(ended.stdout.head),
        stdout_tail=_text(ended.stdout.tail),
        stdout_bytes=ended.stdout.bytes,
        stderr_head=_text(ended.stderr.head),
        stderr_tail=_text(ended.stderr.tail),
        stderr_bytes=ended.stderr.bytes,
        duration_ms=ended.duration_ms,
        rung=rung.value,
        sandboxed=rung is not Rung.RLIMITS,
    )


def _more(ended: Ended, rung: Rung) -> str:
    """What fenced it in, and what it said last."""
    said = _text((ended.stderr.head + ended.stderr.tail)[-_SAID_BYTES:]).strip()
    return _on(rung) + (f"; its last words: {said}" if said else "")


def _on(rung: Rung) -> str:
    return f"; on the rung {rung}" + (": it had no sandbox" if rung is Rung.RLIMITS else "")


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


@run_command.simulate
def foresee_command(params: RunCommand) -> str:
    """What a dry run tells."""
    return f"run in a sandbox, for {params.timeout_ms} ms at most: {params.command}"
