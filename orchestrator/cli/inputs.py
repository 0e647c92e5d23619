"""Text that a command is given: as an option's value, from a file, or (`-`) from standard input."""

import sys
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError

from schemas.canonical import NotCanonical, parse_json
from schemas.issues import issues_of
from schemas.policy import PolicyRequest

MOST: Final = 64 * 1024 * 1024  # far above any limit a setting can have; only stops an endless pipe


def read_bytes(source: str) -> bytes:
    """The bytes of a file, or of standard input for `-`. A usage error says what is wrong with it."""
    raw = sys.stdin.buffer.read(MOST + 1) if source == "-" else _file(Path(source))
    if len(raw) > MOST:
        raise click.UsageError(f"{source}: more than {MOST} bytes")
    return raw


def read_text(source: str) -> str:
    """The same as text, which must be UTF-8."""
    try:
        return read_bytes(source).decode()
    except UnicodeDecodeError as wrong:
        raise click.UsageError(f"{source}: not UTF-8 at byte {wrong.start}") from None


def one_text(name: str, text: str | None, source: str | None) -> str | None:
    """The value of --NAME, or what --NAME-file points to."""
    if text is not None and source is not None:
        raise click.UsageError(f"--{name} and --{name}-file say the same thing; give one of them")
    return text if source is None else read_text(source)


def read_policy(source: str | None) -> PolicyRequest | None:
    """The policy of --policy FILE. A usage error names the field that does not fit."""
    if source is None:
        return None
    try:
        text = read_bytes(source)
        parse_json(text, max_bytes=MOST)
        return PolicyRequest.model_validate_json(text)
    except NotCanonical as wrong:
        raise click.UsageError(f"--policy {source}: {wrong}") from None
    except ValidationError as wrong:
        raise click.UsageError(f"--policy {source}: {issues_of(wrong)[0]}") from None


def read_json(name: str, text: str) -> Any:
    """The JSON value of --NAME, or of standard input for `-`. A usage error says where it ends to be JSON."""
    raw = read_bytes("-") if text == "-" else text.encode()
    try:
        return parse_json(raw, max_bytes=MOST)
    except NotCanonical as wrong:
        raise click.UsageError(f"--{name}: {wrong}") from None


def one_stdin(*sources: str | None) -> None:
    """Standard input can be read once only."""
    if sum(source == "-" for source in sources) > 1:
        raise click.UsageError("only one of the inputs can be '-' (standard input)")


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST + 1)
    except OSError as wrong:
        raise click.UsageError(f"{path}: {wrong.strerror or wrong}") from None
