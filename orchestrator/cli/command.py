"""How every command ends: with an answer, or with an error in one shape and an exit code that means one thing.

    0    done
    1    it ran, and the answer is no (refused, failed, not found)
    2    it was called wrongly, or a setting is wrong
    3    a service it needs cannot be reached or used
    130  interrupted
    141  whoever read the output has gone, as in `mandor run list | head`

With --json an error is `{"error": {"kind", "message", "path", "hint"}}` on standard output and nothing else is; beside
it in the same document stands what a command about many had done by then.
"""

import difflib
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
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
READER_GONE: Final = 141  # what a shell says of a program that SIGPIPE ended

_SERVICES: Final = (StoreError, LedgerUnavailable, LedgerMissing, BrokerUnavailable, NoAnswer)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, where there is something to say about it."""

    def __init__(self, hint: str, done: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.told = MandorError("interrupted", hint=hint)
        self.told.done = done or {}


class ReaderGone(Exception):
    """Nobody reads the output any more. Not a BrokenPipeError: click ends with 1 for that, as for a "no"."""


class Command(click.Command):
    """A command that takes --json."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_json_option())

    def invoke(self, ctx: click.Context) -> Any:
        """What the command answers. ReaderGone: it could not be told."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as gone:
            raise ReaderGone from gone


@dataclass(frozen=True, slots=True)
class Later:
    """A command whose module is imported when it is called. summary: its line in the help of its group."""

    module: str
    name: str
    summary: str

    def command(self) -> click.Command:
        """The command itself."""
        found = getattr(import_module(self.module), self.name)
        assert isinstance(found, click.Command)
        return found


class Group(click.Group):
    """A group whose commands take --json; it may also stand before the command.

    later: commands by name, in the order in which help shows them. One that nobody calls is not imported, because a
    person waits for each of its libraries.
    """

    def __init__(self, *args: Any, later: Mapping[str, Later] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_json_option())
        self.later = dict(later or {})

    command_class = Command
    group_class = type

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Those that come later first, in their own order."""
        return [*self.later, *(name for name in super().list_commands(ctx) if name not in self.later)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, imported if need be."""
        if cmd_name in self.later and cmd_name not in self.commands:
            self.add_command(self.later[cmd_name].command(), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Help imports nothing."""
        if not self.later:
            super().format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._summary(ctx, name)) for name in self.list_commands(ctx)])

    def _summary(self, ctx: click.Context, name: str) -> str:
        if name in self.later:
            return self.later[name].summary
        found = self.get_command(ctx, name)
        return found.get_short_help_str() if found else ""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names. A usage error guesses what was meant."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            raise Unknown(f"no command is called {name!r}", meant(ctx, self, name), ctx)
        return super().resolve_command(ctx, args)


class Unknown(click.UsageError):
    """Nothing bears this name. guess: what does, and may have been meant."""

    def __init__(self, message: str, guess: str | None, ctx: click.Context) -> None:
        super().__init__(message, ctx)
        self.guess = guess


def meant(ctx: click.Context, group: Group, name: str) -> str | None:
    """The whole command that this name may stand for: one beside it that looks alike, or one elsewhere."""
    close = difflib.get_close_matches(name, group.list_commands(ctx), n=1)
    if close:
        return f"{ctx.command_path} {close[0]}"
    root = ctx.find_root()
    elsewhere = [path for path in _paths(root, root.command) if path[-1] == name]
    return " ".join([root.command_path, *elsewhere[0]]) if elsewhere else None


def _paths(ctx: click.Context, found: click.Command, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command below this one, by the words that call it."""
    if isinstance(found, click.Group):
        for name in found.list_commands(ctx):
            yield (*before, name)
            child = found.get_command(ctx, name)
            if child is not None:
                yield from _paths(ctx, child, (*before, name))


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
    except (KeyboardInterrupt, click.Abort) as stop:
        return _tell(_told(stop), "interrupted", INTERRUPTED, arguments)
    except click.exceptions.NoArgsIsHelpError as wrong:
        return _show_help(wrong, arguments)
    except click.ClickException as wrong:
        return _tell(_from_click(wrong), "usage", USAGE, arguments)
    except ReaderGone:
        return _reader_gone()
    except MandorError as error:
        return _tell(error, error.kind, exit_code(error), arguments)
    except Exception as error:  # noqa: BLE001  # the promise that nothing escapes
        return _fault(error, arguments)


def _told(stop: BaseException) -> MandorError:
    """What there is to say about a Ctrl-C, which click hands on as its own exception."""
    said = (one.told for one in (stop, stop.__cause__) if isinstance(one, Interrupted))
    return next(said, MandorError("interrupted"))


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
        output.print_json({"error": {**error.as_json(), "kind": kind}, **error.done})
        return code
    where = f"{error.path}: " if error.path and not error.message.startswith(f"{error.path}:") else ""
    output.note(f"error: {where}{error.message}")
    if error.hint:
        output.note(f"  {error.hint}")
    return code


def _from_click(wrong: click.ClickException) -> MandorError:
    context = getattr(wrong, "ctx", None)
    guess = _guess(wrong)
    helpful = f"try: `{context.command_path} --help`" if context else None
    hint = f"did you mean `{guess}`? {helpful or ''}".rstrip() if guess else helpful
    return MandorError(_message(wrong), path=_name_of(getattr(wrong, "param", None)), hint=hint)


def _guess(wrong: click.ClickException) -> str | None:
    """What the caller may have meant, as it is written on the command line."""
    if isinstance(wrong, Unknown):
        return wrong.guess
    possible = wrong.possibilities if isinstance(wrong, click.NoSuchOption) else None
    return possible[0] if possible else None


def _message(wrong: click.ClickException) -> str:
    """Click's own words, on one line, but for its guess, which is in the hint."""
    if isinstance(wrong, click.NoSuchOption):
        return f"no option is called {wrong.option_name}"
    return " ".join(wrong.format_message().split())


def _name_of(parameter: click.Parameter | None) -> str | None:
    """As the caller writes it: `--limit`, `ID`."""
    if isinstance(parameter, click.Option):
        return parameter.opts[0]
    return parameter.human_readable_name if parameter else None


def _show_help(wrong: click.exceptions.NoArgsIsHelpError, arguments: Sequence[str]) -> int:
    if wants_json(arguments):
        return _tell(MandorError("a command is missing", hint="try: `mandor --help`"), "usage", USAGE, arguments)
    click.echo(wrong.ctx.get_help())
    return USAGE


def _reader_gone() -> int:
    """`mandor … | head`: whoever read has seen enough. Python must not complain about it when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE


def _fault(error: Exception, arguments: Sequence[str]) -> int:
    traceback.print_exception(error, file=sys.stderr)
    hint = "this is a fault of mandor; please report it with the traceback"
    return _tell(MandorError(f"{type(error).__name__}: {error}", hint=hint), "internal", NO, arguments)
