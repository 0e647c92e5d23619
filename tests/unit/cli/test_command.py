import json
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from orchestrator import errors
from orchestrator.cli import output
from orchestrator.cli.command import Group, Interrupted, exit_code, run
from tests.support.environment import ROOT
from workers.cli import COMMANDS, mandor


class Clash(errors.MandorError):
    kind = "clash"


@click.group(cls=Group)
def group() -> None:
    """Commands that end in every way."""


@group.command("fail")
def fail() -> None:
    """End with an error."""
    raise Clash("no\x1b[31m way", path="field", hint="do this")


@group.command("bug")
def bug() -> None:
    """End with a fault of ours."""
    raise ZeroDivisionError("oh")


@group.command("interrupted")
def interrupted() -> None:
    """End as Ctrl-C ends it."""
    raise KeyboardInterrupt


@group.command("interrupted-with-hint")
def interrupted_with_hint() -> None:
    """End as Ctrl-C ends it where something goes on."""
    raise Interrupted("it goes on")


@group.command("no")
def no() -> None:
    """End with the answer no."""
    click.get_current_context().exit(1)


@group.command("say")
@click.argument("words", nargs=-1)
def say(words: tuple[str, ...]) -> None:
    """Print something."""
    if output.as_json():
        output.print_json({"words": words})
    else:
        click.echo(" ".join(words))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), 2),
        (errors.SubmissionRefused("x"), 1),
        (errors.SubmissionConflict("x"), 1),
        (errors.NotFound("x"), 1),
        (errors.StoreUnavailable("x"), 3),
        (errors.StoreMoved("x"), 3),
        (errors.StoreAmnesia("x"), 3),
        (errors.StoreRefused("x"), 1),
        (errors.LedgerUnavailable("x"), 3),
        (errors.LedgerMissing("x"), 3),
        (errors.BrokerUnavailable("x"), 3),
        (errors.NoAnswer("x"), 3),
    ],
)
def test_each_error_has_its_exit_code(error: errors.MandorError, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["say", "a"], 0),
        (["no"], 1),
        (["fail"], 1),
        (["bug"], 1),
        (["interrupted"], 130),
        (["unknown"], 2),
        (["say", "--unknown"], 2),
        ([], 2),
        (["--help"], 0),
    ],
)
def test_exit_codes(arguments: list[str], code: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(group, arguments) == code


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["fail", "--json"], "clash"),
        (["--json", "fail"], "clash"),
        (["bug", "--json"], "internal"),
        (["interrupted", "--json"], "interrupted"),
        (["unknown", "--json"], "usage"),
        (["say", "--nonsense", "--json"], "usage"),
        (["--json"], "usage"),
    ],
)
def test_with_json_an_error_is_one_object_and_nothing_else(
    arguments: list[str], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(group, arguments) != 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"kind", "message", "path", "hint"}
    assert answer["error"]["kind"] == kind


def test_without_json_an_error_is_for_people_and_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    run(group, ["fail"])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: field: no\\x1b[31m way\n  do this\n"


def test_ctrl_c_may_have_something_said_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(group, ["interrupted-with-hint", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["error"]["hint"] == "it goes on"


def test_what_comes_after_two_dashes_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(group, ["say", "--", "--json"]) == 0
    assert capsys.readouterr().out == "--json\n"


def test_json_is_pure_ascii_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    run(group, ["say", "--json", "\x1b[2J", "\u202e注文"])
    text = capsys.readouterr().out
    assert text.isascii()
    assert "\x1b" not in text
    assert text.count("\n") == 1
    assert json.loads(text) == {"words": ["\x1b[2J", "\u202e注文"]}


def commands(found: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(found, click.Group):
        context = click.Context(found)
        for name in found.list_commands(context):
            command = found.get_command(context, name)
            assert command is not None
            yield from commands(command, (*path, name))
    else:
        yield path, found


def test_every_command_has_help_with_examples_and_takes_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = dict(commands(mandor))
    assert {("run", "submit"), ("run", "show"), ("plan", "validate"), ("dlq", "list"), ("ledger", "upgrade")} <= set(
        found
    )
    for path, command in found.items():
        assert run(mandor, [*path, "--help"]) == 0
        text = capsys.readouterr().out
        assert "--json" in text, path
        assert command.help, path
        assert "Example" in text, path
        assert f"mandor {' '.join(path)}" in text.partition("Example")[2], path


def test_help_says_of_a_command_what_the_command_says_of_itself() -> None:
    for name, later in COMMANDS.items():
        said = later.command().help or ""
        assert said.startswith(later.summary.removesuffix(".")), name


@pytest.mark.parametrize(
    ("arguments", "guess"),
    [
        (["rnu"], "`mandor run`"),
        (["run", "sho"], "`mandor run show`"),
        (["submit", "--plan", "x"], "`mandor run submit`"),
        (["actions", "events"], "`mandor run events`"),
        (["dlq", "list", "--limt", "3"], "`--limit`"),
        (["dlq", "--jsn"], "`--json`"),
    ],
)
def test_what_nobody_knows_is_met_with_a_guess(
    arguments: list[str], guess: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(mandor, arguments) == 2
    assert f"did you mean {guess}?" in capsys.readouterr().err


def test_without_a_guess_help_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mandor, ["xyzzy"]) == 2
    assert capsys.readouterr().err == "error: no command is called 'xyzzy'\n  try: `mandor --help`\n"


def test_without_a_command_help_tells_where_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    run(mandor, [])
    text = capsys.readouterr().out
    assert "Start here:" in text
    assert "mandor up" in text


HEAVY = {"alembic", "celery", "kombu", "pydantic", "redis", "rich", "sqlalchemy"}


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_what_needs_no_library_imports_none(arguments: list[str]) -> None:
    program = f"""
import sys
from orchestrator.cli.command import run
from workers.cli import mandor
assert run(mandor, {arguments}) == 0
print({HEAVY} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_reading_a_plan_s_help_opens_no_service() -> None:
    """Completion and help wait for the modules of one command only."""
    program = (
        "import sys, workers.cli; workers.cli.COMMANDS['run'].command(); print({'celery', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_what_click_writes_on_several_lines_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mandor, ["health"]) == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("error: --role: Missing option '--role'. Choose from: steps, ")
    assert "\\" not in first
