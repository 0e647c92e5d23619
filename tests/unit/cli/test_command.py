import json
from collections.abc import Iterator

import click
import pytest

from orchestrator import errors
from orchestrator.cli import output
from orchestrator.cli.command import Group, exit_code, run


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
        for name, command in found.commands.items():
            yield from commands(command, (*path, name))
    else:
        yield path, found


def test_every_command_has_help_and_takes_json(capsys: pytest.CaptureFixture[str]) -> None:
    from workers.cli import mandor

    found = dict(commands(mandor))
    assert {("run", "submit"), ("run", "show"), ("plan", "validate"), ("dlq", "list"), ("ledger", "upgrade")} <= set(
        found
    )
    for path, command in found.items():
        assert run(mandor, [*path, "--help"]) == 0
        text = capsys.readouterr().out
        assert "--json" in text, path
        assert command.help, path
        assert "Example" in text or path == ("config", "show"), path
