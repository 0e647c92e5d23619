"""The log of effects from both ends: workers tell the witness, the kit reads what it wrote down."""

import hashlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

FOLDER: Final = "MANDORS_FAULTS"  # environment: where pipe, log and orders lie; no setting of Mandor's, hence the S
PIPE: Final = "witness.pipe"
LOG: Final = "effects.jsonl"
FULL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Act:
    """A line of the log.

    what: `began`, `acted` or `raised` of an action; `undoing`, `undone` or `undo_raised` of a compensation; `asked` of
    a probe; `ordered` of an order that is carried out now; `came` of a message that a worker begins with;
    `called` of a callback that was received. number: in the order of the witness, whose time is `at` (ms
    since the epoch). details: more, by what it is.
    """

    what: str
    run_id: str
    step_id: str
    number: int
    at: int
    attempt: int = 0
    fence: int = 0
    key: str = ""
    pid: int = 0
    details: dict[str, Any] = field(default_factory=dict, hash=False)


def folder() -> Path:
    """Where the kit of this process lies."""
    return Path(os.environ[FOLDER])


def tell(what: str, run_id: str, step_id: str, **fields: Any) -> None:
    """One line to the witness, written whole. OSError: there is no witness."""
    tell_at(folder(), what, run_id, step_id, **fields)


def tell_at(place: Path, what: str, run_id: str, step_id: str, /, **fields: Any) -> None:
    """The same to the witness of this folder."""
    line = {"what": what, "run_id": run_id, "step_id": step_id, "pid": os.getpid(), **fields}
    write(place / PIPE, json.dumps(line).encode() + b"\n")


def write(pipe: Path, line: bytes) -> None:
    """A pipe that is full is waited for; one that nobody reads is an error."""
    descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                os.write(descriptor, line)
            except BlockingIOError:
                time.sleep(FULL_S)
            else:
                return
    finally:
        os.close(descriptor)


def fingerprint(params: BaseModel) -> str:
    """What tells the inputs of one step from those of another, in whichever process: of what was given, not of what
    validation adds, and whatever the order in which a process has its sets.
    """
    return hashlib.sha256(_text(_plain(params)).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in value.model_fields_set}
    if isinstance(value, Mapping):
        return {_text(_plain(key)): _plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(_text(_plain(one)) for one in value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return to_jsonable_python(value, fallback=lambda unknown: type(unknown).__qualname__)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


class Log:
    """What the witness wrote down so far."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._read = 0
        self._acts: list[Act] = []
        self._of_run: defaultdict[str, list[Act]] = defaultdict(list)
        self._marks = count(1)

    def acts(self, *, run_ids: Iterable[str] | None = None, what: str | None = None) -> list[Act]:
        """The lines that are there, of these runs and of this kind."""
        for act in self._news():
            self._acts.append(act)
            self._of_run[act.run_id].append(act)
        return [act for act in self._chosen(run_ids) if what in (None, act.what)]

    def _chosen(self, run_ids: Iterable[str] | None) -> list[Act]:
        if run_ids is None:
            return self._acts
        found = (self._of_run.get(run_id, []) for run_id in set(run_ids))
        return sorted(chain.from_iterable(found), key=lambda act: act.number)

    def mark(self) -> str:
        """Put a line behind all that was told so far; once it is there, so are they."""
        name = f"mark-{next(self._marks)}"
        line = json.dumps({"what": "mark", "run_id": name, "step_id": "", "pid": os.getpid()})
        write(self._place / PIPE, line.encode() + b"\n")
        return name

    def has(self, mark: str) -> bool:
        """Whether everything before the mark can be read."""
        return bool(self.acts(run_ids=[mark]))

    def _news(self) -> Iterator[Act]:
        file = self._place / LOG
        if not file.exists():
            return
        with file.open("rb") as lines:
            lines.seek(self._read)
            for line in lines:
                if not line.endswith(b"\n"):  # still being written
                    return
                self._read += len(line)
                yield act_of(json.loads(line))


def act_of(told: dict[str, Any]) -> Act:
    """A line as it was written down."""
    known = {name: told.pop(name) for name in Act.__dataclass_fields__ if name in told}
    return Act(**known, details=told)
