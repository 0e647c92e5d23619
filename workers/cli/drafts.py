"""What a person writes in an editor in place of what a dead letter is about. It is kept until the door takes it."""

import glob
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import click

from orchestrator.cli import inputs
from orchestrator.errors import DecisionRefused
from orchestrator.telemetry.text import printable
from schemas.canonical import NotCanonical, parse_json
from schemas.dead_letter import DeadLetter, DeadLetterKind

FOLDER: Final = "drafts"
MARK: Final = "# "
LINE: Final = re.compile(r"[^\n\r\t]+")
MOST: Final = 64 * 1024 * 1024
CLOCK_S: Final = 10  # far above the steps in which any file system dates a file
KEPT_D: Final = 30  # a draft nobody has opened for so long is given up: secrets may have been written into it


class Draft:
    """The file of one letter, its owner's alone: what letters are about may be nobody else's business."""

    def __init__(self, home: Path, letter: DeadLetter) -> None:
        self.path = home.resolve() / FOLDER / f"letter-{letter.id.replace(':', '_')}.json"
        self._letter = letter

    def edited(self) -> str | None:
        """The text after $EDITOR was closed, without the remarks at its head; None if nothing was saved there, or what
        was refused. Of what was saved in an earlier session, leaving without saving makes no edit.

        DecisionRefused: somebody else edits it, or there is nothing to edit.
        """
        refused = refused_text(self._letter)
        with self._held():
            prune(self.path.parent)
            before = self._text()
            self._write(self._head() + (before or refused))
            opened = self._saved_at()
            self._opened()
            text = self._text()
            if text in ("", without_remarks(refused)):
                self._left(before, text)
                return None
            _check_utf8(text)
            return text if self._saved_at() != opened else None

    def _left(self, before: str, text: str) -> None:
        """No edit was made. Who empties what was written in an earlier session, or takes it away, may not mean that."""
        if text == "" and before not in ("", self._refused()):
            self._write(self._head() + before)
        else:
            self._delete()

    def _opened(self) -> None:
        try:
            click.edit(filename=str(self.path))
        except click.ClickException as failed:
            message = f"the editor did not come to its end, so nothing is done: {failed.format_message()}"
            raise DecisionRefused(message, hint="see $VISUAL and $EDITOR, or give --file FILE") from None

    def kept(self) -> Path | None:
        """Where something lies that a person has written."""
        return self.path if self._text() not in ("", self._refused()) else None

    def forget(self) -> None:
        """It has served. Under the hands of somebody who edits it, it is left to them."""
        with suppress(DecisionRefused):
            if self.path.exists():
                with self._held():
                    self._delete()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Inside, no other process opens it. DecisionRefused: one has."""
        from orchestrator.local.lock import Lock

        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = Lock(self.path.with_suffix(".lock"))
        if not lock.take():
            message = f"process {lock.holder()} on this machine has this letter in an editor"
            raise DecisionRefused(message, path="letter_id", hint="close it there, or give --file FILE")
        try:
            yield
        finally:
            lock.release()

    def _head(self) -> str:
        """What the editor shows first: what was wrong."""
        return "".join(f"{MARK}{line}\n" for line in remarks(self._letter))

    def _refused(self) -> str:
        """What there is to edit, as the file would have it."""
        try:
            return without_remarks(refused_text(self._letter))
        except DecisionRefused:
            return ""

    def _text(self) -> str:
        """What stands in the file, without its head; nothing if there is none."""
        raw = inputs.read_bytes(str(self.path)) if self.path.exists() else b""
        return without_remarks(raw.decode(errors="surrogateescape"))

    def _saved_at(self) -> tuple[int, int] | None:
        """Tells one saving from another."""
        with suppress(FileNotFoundError):
            found = self.path.stat()
            return found.st_mtime_ns, found.st_ino
        return None

    def _delete(self) -> None:
        """With what editors leave beside it. The lock stays: somebody else may be waiting for this very file."""
        mine = glob.escape(self.path.stem)
        beside = (f"{mine}.*", f"[.#]{mine}.*", f".#{mine}.*")
        for path in (found for pattern in beside for found in self.path.parent.glob(pattern)):
            if path.suffix != ".lock":
                path.unlink(missing_ok=True)

    def _write(self, text: str) -> None:
        """All of it or nothing: whoever is ended in the middle, or has no room, still has what was written before. It
        is dated back a little, so that a saving shows however coarse the file system's clock is."""
        beside = self.path.with_suffix(".new")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text.encode(errors="surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
        a_while_ago = time.time() - CLOCK_S
        os.utime(beside, (a_while_ago, a_while_ago))
        beside.replace(self.path)


def _check_utf8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DecisionRefused(
            "what the editor saved is not UTF-8, so nothing is done", hint="save it as UTF-8"
        ) from None


def prune(folder: Path) -> None:
    """Delete what was opened last too long ago. Whoever edits a letter has just opened its files."""
    oldest = time.time() - KEPT_D * 86_400
    for path in (*folder.glob("letter-*"), *folder.glob("[.#]letter-*")):
        with suppress(FileNotFoundError):  # another process does the same
            if path.stat().st_mtime < oldest:
                path.unlink()


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
        return laid_out(json.dumps(letter.content.get("submission"), ensure_ascii=True))
    raw = _last(letter).get("raw")
    if not isinstance(raw, str):
        message = "this letter has no answer that could be edited"
        hint = f"give a plan: --file FILE; or plan anew: `mandor dlq replay {letter.id}`"
        raise DecisionRefused(message, path="letter_id", hint=hint)
    return laid_out(raw)


def may_be_edited(letter: DeadLetter) -> None:
    """DecisionRefused: it is about something that nobody has written."""
    if letter.kind in (DeadLetterKind.PLAN, DeadLetterKind.SUBMISSION):
        return
    is_step = letter.kind is DeadLetterKind.STEP
    hint = f"`mandor dlq replay {letter.id}` starts its run over" if is_step else f"see `mandor dlq show {letter.id}`"
    raise DecisionRefused(f"a letter of kind {letter.kind} has nothing to edit", path="letter_id", hint=hint)


def laid_out(text: str) -> str:
    """JSON on lines of its own; anything else, also what only looks like it, as it is. In both what a reader would not
    see, or see in another order, is written as its escape."""
    try:
        parse_json(text, max_bytes=MOST)
    except NotCanonical:
        shown = LINE.sub(lambda found: printable(found[0]), text)
        return shown if shown.endswith("\n") else shown + "\n"
    return json.dumps(json.loads(text), ensure_ascii=True, indent=2) + "\n"


def _last(letter: DeadLetter) -> dict[str, Any]:
    attempts = letter.content.get("attempts")
    last = attempts[-1] if isinstance(attempts, list) and attempts else None
    return last if isinstance(last, dict) else {}
