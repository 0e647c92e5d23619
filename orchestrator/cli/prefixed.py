"""Lines of several processes in one terminal, each after the name of who said it; in colours where there are any."""

import json
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import IO, Any, Final

from orchestrator.telemetry.text import printable

OURS: Final = "mandor"
WIDTH: Final = 10
COLOURS: Final = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
OURS_STYLE: Final = "1"
# empty lines, and what Celery says at SIGQUIT to somebody whose Ctrl-C would reach it; here it would not
NOISE: Final = re.compile(r"\s*$|worker: Hitting Ctrl\+C")


class Lines:
    """on_gone: called when nobody can read any more what is printed here."""

    def __init__(self, out: IO[str] | None = None, *, as_json: bool, on_gone: Callable[[], None]) -> None:
        self._out = out or sys.stdout
        self.as_json = as_json
        self._on_gone = on_gone
        self._colour = self._out.isatty() and not os.environ.get("NO_COLOR")
        self._start = "\r" if self._out.isatty() else ""  # over the ^C that a terminal shows for the key
        self._colours: dict[str, int] = {}
        self._lock = threading.Lock()
        self._gone = False

    def say(self, text: str) -> None:
        """A line of our own."""
        self.line(OURS, text)

    def line(self, name: str, line: str) -> None:
        """A line of a process, with nothing in it that a terminal would obey."""
        if NOISE.match(line):
            return
        if self.as_json:
            self.emit({"process": name, "line": line})
        else:
            self._write(f"{self._prefix(name)} {printable(line)}")

    def emit(self, fields: dict[str, Any]) -> None:
        """One JSON object."""
        self._write(json.dumps(fields))

    def _prefix(self, name: str) -> str:
        text = f"{printable(name):<{WIDTH}}|"
        if not self._colour:
            return text
        style = OURS_STYLE if name == OURS else str(self._colour_of(name))
        return f"\x1b[{style}m{text}\x1b[0m"

    def _colour_of(self, name: str) -> int:
        return self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])

    def _write(self, text: str) -> None:
        """Whole lines, from any thread. A closed pipe or terminal is told once, and then written to no more."""
        with self._lock:
            if self._gone:
                return
            try:
                print(self._start + text, file=self._out, flush=True)
            except OSError:
                self._gone = True
                self._on_gone()
