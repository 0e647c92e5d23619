"""What a person writes in an editor in place of what a dead letter is about. It is kept until the door takes it."""

import json
import os
from pathlib import Path
from typing import Any, Final

import click

from orchestrator.errors import DecisionRefused
from orchestrator.telemetry.text import printable
from schemas.canonical import NotCanonical, parse_json
from schemas.dead_letter import DeadLetter, DeadLetterKind

FOLDER: Final = "drafts"
MARK: Final = "# "
MOST: Final = 64 * 1024 * 1024


class Draft:
    """The file of one letter, its owner's alone: what letters are about may be nobody else's business."""

    def __init__(self, home: Path, letter: DeadLetter) -> None:
        self.path = home.resolve() / FOLDER / f"letter-{letter.id.replace(':', '_')}.json"
        self._letter = letter

    def edited(self) -> str | None:
        """The text after $EDITOR was closed, without the remarks at its head; None if nothing was changed."""
        goes_on = self.path.exists()
        before = self._before(self.path.read_text() if goes_on else refused_text(self._letter))
        self._write(before)
        click.edit(filename=str(self.path))
        after = self.path.read_text()
        if after == before and not goes_on:
            self.forget()
            return None
        return without_remarks(after)

    def forget(self) -> None:
        """It has served."""
        self.path.unlink(missing_ok=True)

    def _before(self, text: str) -> str:
        """What the editor shows first: what was kept, or what was refused, below why."""
        return "".join(f"{MARK}{line}\n" for line in remarks(self._letter)) + without_remarks(text)

    def _write(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)


def remarks(letter: DeadLetter) -> list[str]:
    """What the person who edits it needs to know."""
    faults = [
        f"{error.get('path') or '(all of it)'}: {error.get('message')}" for error in _last(letter).get("errors", [])
    ]
    told = faults or [letter.reason]
    head = [f"letter {letter.id}, about a {letter.kind.value}; what was wrong:"]
    tail = ["Lines at the top that begin with # are not part of it. Secrets were taken out: they show as ***."]
    return [printable(line) for line in (*head, *(f"  {fault}" for fault in told), *tail)]


def without_remarks(text: str) -> str:
    """The text without the lines at its head that begin with a mark."""
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith(MARK.strip()):
        lines.pop(0)
    return "".join(lines)


def refused_text(letter: DeadLetter) -> str:
    """What the letter is about, laid out to be read where it is JSON. DecisionRefused: there is nothing to edit."""
    if letter.kind is DeadLetterKind.SUBMISSION:
        return laid_out(json.dumps(letter.content.get("submission"), ensure_ascii=False))
    raw = _last(letter).get("raw")
    if not isinstance(raw, str):
        message = "this letter has no answer that could be edited"
        raise DecisionRefused(message, path="letter_id", hint="give a plan: --file FILE; or `mandor dlq replay`")
    return laid_out(raw.encode("utf-8", "backslashreplace").decode())


def laid_out(text: str) -> str:
    """JSON on lines of its own; anything else, also what only looks like it, as it is."""
    try:
        parse_json(text, max_bytes=MOST)
    except NotCanonical:
        return text if text.endswith("\n") else text + "\n"
    return json.dumps(json.loads(text), ensure_ascii=False, indent=2) + "\n"


def _last(letter: DeadLetter) -> dict[str, Any]:
    attempts = letter.content.get("attempts")
    last = attempts[-1] if isinstance(attempts, list) and attempts else None
    return last if isinstance(last, dict) else {}
