"""What a step does on every side: it has an effect on a world outside, and tells the witness.

The world is a folder with a file for each part of each run, in which each effect leaves a byte. There are three kinds,
as there are of services, and runs are of each in turn.
"""

import os
from pathlib import Path
from typing import Final

from workers.faults import log
from workers.faults.deeds import pass_by

WORLDS: Final = {
    "blind": "the world outside knows no keys and cannot be asked",
    "asked": "the world outside can be asked what has happened, and is, before each effect",
    "keyed": "the world outside has one effect for each key, and run and part are the key",
}
PARTS: Final = ("first", "second", "third")  # of each run; they have nothing to do with each other
PLACES: Final = ("began", "acting", "acted")  # where a step can be stopped; what it may ask lies behind it at `acting`
SENDING, SENT, END = "sending", "sent", "end"  # where whoever sends the end of a run can be stopped; it is no part
SESSION: Final = "bench"  # of Mandor's runs
LIMIT_S: Final = 10  # time limit of a step


def act(run: str, part: str, world: str) -> str:
    """Have the effect. Answers whose it is, and of which part."""
    log.tell("began", run, part)
    pass_by("began", run, part)
    if not (world == "asked" and effects(log.folder(), run, part)):
        pass_by("acting", run, part)
        _leave(_file(log.folder(), run, part), more=world != "keyed")
        log.tell("acted", run, part)
    pass_by("acted", run, part)
    return said(run, part)


def said(run: str, part: str) -> str:
    """What a part of a run contributes to the run's result."""
    return f"{run}/{part}"


def effects(folder: Path, run: str, part: str) -> int:
    """How often it has happened."""
    file = _file(folder, run, part)
    return file.stat().st_size if file.exists() else 0


def _leave(file: Path, *, more: bool) -> None:
    """One byte; behind those that are there, or over them."""
    file.parent.mkdir(exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | (os.O_APPEND if more else 0), 0o600)
    os.write(descriptor, b".")
    os.close(descriptor)


def _file(folder: Path, run: str, part: str) -> Path:
    return folder / "world" / f"{run}.{part}"
