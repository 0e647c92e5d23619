"""The Procfile's lines as commands: the one place that says which processes an installation has.

The file lies beside the packages in a checkout, and in this folder in an installed wheel.
"""

import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from orchestrator.errors import ConfigError
from orchestrator.local.child import Command

NAME: Final = "Procfile"
READY: Final = r"\bservice\.ready\b"  # what every process of ours prints, in either format, at any log level
# an installed script may not be on the path, and its first line may not work; the module always does
MODULES: Final[Mapping[str, str]] = {"celery": "celery", "mandor": "workers.cli"}


def procfile() -> Path:
    """Where our Procfile lies."""
    here = Path(__file__).resolve()
    found = next((path for path in (here.with_name(NAME), here.parents[2] / NAME) if path.is_file()), None)
    if found is None:
        raise ConfigError("the Procfile is missing from this installation", path=NAME, hint="install Mandor again")
    return found


def lines(text: str) -> Iterator[tuple[str, str]]:
    """Name and command of each line, as honcho and foreman read them."""
    for line in text.splitlines():
        name, colon, command = line.partition(":")
        if colon and command.strip() and not line.startswith("#"):
            yield name.strip(), command.strip()


def commands(env: Mapping[str, str], cwd: Path | None = None) -> list[Command]:
    """The Procfile's processes in its order, run by this interpreter. env: all that they get."""
    text = procfile().read_text(encoding="utf-8")
    return [Command(name, argv(line), env=env, cwd=cwd, ready=READY) for name, line in lines(text)]


def argv(line: str) -> list[str]:
    """The words of a line, with a script of ours as a module of this interpreter."""
    words = shlex.split(line)
    at = next((i for i, word in enumerate(words) if word != "env" and "=" not in word), 0)
    if words[at] in MODULES:
        words[at : at + 1] = [sys.executable, "-m", MODULES[words[at]]]
    return words
