"""How every command ends: with an answer, or with an error in one shape and an exit code that means one thing.

    0    done
    1    it ran, and the answer is no (refused, failed, not found)
    2    it was called wrongly, or a setting is wrong
    3    a service it needs cannot be reached or used
    130  interrupted

With --json an error is `{"error": {"kind", "message", "path", "hint"}}` on standard output and nothing else is.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final

import click

from orchestrator.cli import output
from orchestrator.errors import (
    BrokerUnavailable,
    ConfigError,
    LedgerMissing,
    LedgerUnavailable,
    MandorError,
    NoAnswer,
    StoreError,
    StoreRefused,
)

DONE: Final = 0
NO: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
INTERRUPTED: Final = 130

_SERVICES: Final = (StoreError, LedgerUnavailable, LedgerMissing, BrokerUnavailable, NoAnswer)


class Command(click.Command):
    """A command that takes --json."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_json_option())


class Group(click.Group):
    """A group whose commands take --json; it may also stand before the command."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_json_option())

    command_class = Command
    group_class = type


def _json_option() -> click.Option:
    return click.Option(
        ["--json"], is_flag=True, expose_value=False, callback=_remember_json, help="Print JSON for programs."
    )


def _remember_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.meta[output.JSON_KEY] = True


def run(group: click.Group, arguments: Sequence[str]) -> int:
    """Run the command line and answer its exit code. Nothing escapes."""
    output.prepare_streams()
    try:
        answer = group.main(list(arguments), prog_name="mandor", standalone_mode=False)
        return answer if isinstance(answer, int) else DONE
    except (KeyboardInterrupt, click.Abort):
        return _tell(MandorError("interrupted"), "interrupted", INTERRUPTED, arguments)
    except click.exceptions.NoArgsIsHelpError as wrong:
        return _show_help(wrong, arguments)
    except click.ClickException as wrong:
        return _tell(_from_click(wrong), "usage", USAGE, arguments)
    except BrokenPipeError:
        return _reader_gone()
    except MandorError as error:
        return _tell(error, error.kind, exit_code(error), arguments)
    except Exception as error:  # noqa: BLE001  # the promise that nothing escapes
        return _fault(error, arguments)


def exit_code(error: MandorError) -> int:
    """The exit code that stands for this error."""
    if isinstance(error, ConfigError):
        return USAGE
    if isinstance(error, StoreRefused):
        return NO
    return UNREACHABLE if isinstance(error, _SERVICES) else NO


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether --json was given, judged before anything is parsed, so that usage errors know."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def _tell(error: MandorError, kind: str, code: int, arguments: Sequence[str]) -> int:
    if wants_json(arguments):
        output.print_json({"error": {**error.as_json(), "kind": kind}})
        return code
    where = f"{error.path}: " if error.path and not error.message.startswith(f"{error.path}:") else ""
    output.note(f"error: {where}{error.message}")
    if error.hint:
        output.note(f"  {error.hint}")
    return code


def _from_click(wrong: click.ClickException) -> MandorError:
    context = getattr(wrong, "ctx", None)
    hint = f"try: {context.command_path} --help" if context else None
    return MandorError(wrong.format_message(), path=_name_of(getattr(wrong, "param", None)), hint=hint)


def _name_of(parameter: click.Parameter | None) -> str | None:
    """As the caller writes it: `--limit`, `ID`."""
    if isinstance(parameter, click.Option):
        return parameter.opts[0]
    return parameter.human_readable_name if parameter else None


def _show_help(wrong: click.exceptions.NoArgsIsHelpError, arguments: Sequence[str]) -> int:
    if wants_json(arguments):
        return _tell(MandorError("a command is missing", hint="try: mandor --help"), "usage", USAGE, arguments)
    click.echo(wrong.ctx.get_help())
    return USAGE


def _reader_gone() -> int:
    """`mandor … | head`: whoever read has seen enough. Python must not complain about it when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return NO


def _fault(error: Exception, arguments: Sequence[str]) -> int:
    traceback.print_exception(error, file=sys.stderr)
    hint = "this is a fault of mandor; please report it with the traceback"
    return _tell(MandorError(f"{type(error).__name__}: {error}", hint=hint), "internal", NO, arguments)
