"""What a command's step says of the limits it met, and how much of its output fits into its result."""

import os
from pathlib import Path

import pytest

from schemas.canonical import canonical_text
from schemas.policy import Policy, Rung
from workers.actions import commands
from workers.actions.commands import (
    CommandFlooded,
    CommandTimedOut,
    CommandTooHeavy,
    NoSandboxRung,
    RunCommand,
    run_command,
)
from workers.outcomes import PermanentError
from workers.room import WorkspaceFull
from workers.sandbox import ladder
from workers.sandbox.host import Host
from workers.sandbox.jobs import End, Ended, Exited, Flooded, Stream, TimedOut, TooHeavy
from workers.sandbox.ladder import Ladder
from workers.testing import context

NOTHING = Stream(b"", b"", 0)
NONE = Ladder(Host("", "", None, None, None), (), {})


def refusal(end: End, timeout_ms: int, policy: Policy) -> PermanentError:
    params = RunCommand(command="true", timeout_ms=timeout_ms)
    with pytest.raises(PermanentError) as refused:
        commands._result(Ended(end, NOTHING, Stream(b"why", b"", 3), 9), Rung.NAMESPACES, params, policy)
    return refused.value


def test_a_time_limit_is_named_with_whose_it_is() -> None:
    policy = Policy(command_time_s=2.5)
    own, operators = refusal(TimedOut(), 2500, policy), refusal(TimedOut(), 2501, policy)
    assert (type(own), own.path, own.message) == (
        CommandTimedOut,
        "params.timeout_ms",
        "the command was ended at its time limit, 2500 ms; on the rung namespaces; its last words: why",
    )
    assert operators.path == "params.command"
    assert "2.5 s (command_time_s of the policy, MANDOR_COMMAND_TIME_S)" in operators.message


def test_too_much_output_names_field_setting_and_param() -> None:
    loud = refusal(Flooded(), 1000, Policy(command_output_bytes=2))
    assert (type(loud), loud.path) == (CommandFlooded, "params.command")
    assert "3 bytes of output, at most 2 are allowed (command_output_bytes of the policy, MANDOR_COM" in loud.message
    assert loud.message.endswith("; on the rung namespaces")


def test_too_much_memory_names_field_and_setting() -> None:
    heavy = refusal(TooHeavy(), 1000, Policy(command_memory_bytes=2))
    assert (type(heavy), heavy.path) == (CommandTooHeavy, "params.command")
    assert "more than 2 bytes of memory (command_memory_bytes of the policy, MANDOR_COMMAND_MEM" in heavy.message
    assert heavy.message.partition(" (")[0].startswith("the command was ended: all of it together took")


def test_a_missing_sandbox_names_who_asked_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "current", lambda *_: NONE)
    monkeypatch.setattr(ladder, "_ever", {Rung.RLIMITS})
    with pytest.raises(NoSandboxRung, match=r"min_rung of the policy, MANDOR_MIN_RUNG") as missing:
        run_command(RunCommand(command="true"), context(workspace=tmp_path))
    assert missing.value.path == "params.command"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_is_too_full_is_not_handed_over_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root_s = Ladder(Host("", "", None, 65_534, 65_534), (Rung.NAMESPACES,), {})
    monkeypatch.setattr(ladder, "current", lambda *_: root_s)
    ctx = context(workspace=tmp_path, policy=Policy(workspace_files=1))
    for name in "ab":
        (ctx.workspace.path / name).touch()
    with pytest.raises(WorkspaceFull):
        run_command(RunCommand(command="true"), ctx)
    assert {path.stat().st_uid for path in ctx.workspace.path.iterdir()} == {0}


@pytest.mark.parametrize("most", [500, 4096, 262_144])
def test_a_result_fits_into_the_quota_of_its_action_whatever_the_output(most: int) -> None:
    policy = Policy.model_validate({"quotas": {"run_command": {"result_bytes": most}}})
    kept = commands._limits(RunCommand(command="true"), policy).kept_bytes
    widest = Stream(b"\0" * kept, b"\0" * kept, 2**40)
    params = RunCommand(command="true")
    result = commands._result(Ended(Exited(0), widest, widest, 10**9), Rung.BUBBLEWRAP, params, policy)
    size = len(canonical_text(result.model_dump()).encode())
    assert most - 200 < size <= most
