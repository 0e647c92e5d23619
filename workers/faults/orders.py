"""What is to happen to a step, and where: written by the kit, looked up by every worker at every place it passes.

Places of an attempt, in their order: `claimed`, `opened` (keyed and once), `began`, `acted`, `landed` (where the row is
there and the commit is not), `committed`. Of an undo: `undoing`, `undone`, `undo_landed`, `undo_committed`. Of a
message: `sending` and `sent`, and `midway`, where all before it in its wave have been sent; in the place of the step
stands the message's kind, and its step: `plan`, `step:charge`; also `bell` of a letter, `deliver` of a callback.
Of a submission, which has none of its own: `accepting` and `accepted`, with `submit` in the place of the step.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

FILE: Final = "orders.json"
CARRIED_OUT: Final = "carried-out"

Place = str
Deed = Literal["hold", "die", "last", "hang", "sleep", "fail"]


@dataclass(frozen=True, slots=True)
class Order:
    """For one step of one run, once: the first attempt that comes to the place.

    hold: wait until the kit lets go, or kills. die: SIGKILL to itself. last: take `seconds` longer. hang: hold the
    interpreter for ever, so that no other thread runs. sleep: never return. fail: raise for good.
    """

    name: str
    run_id: str
    step_id: str
    place: Place
    deed: Deed
    seconds: float = 0.0

    @property
    def about(self) -> tuple[str, str]:
        """Run and step."""
        return self.run_id, self.step_id


def put(folder: Path, orders: Iterable[Order]) -> None:
    """These are the orders from here on. Whoever reads meanwhile has the ones before."""
    by_key: dict[str, list[dict[str, object]]] = {}
    for order in orders:
        by_key.setdefault(key_of(order.run_id, order.step_id), []).append(asdict(order))
    (folder / CARRIED_OUT).mkdir(exist_ok=True)
    draft = folder / f"{FILE}.new"
    draft.write_text(json.dumps(by_key), encoding="utf-8")
    draft.replace(folder / FILE)


def at(folder: Path, place: Place, run_id: str, step_id: str) -> Order | None:
    """The order for this place that nobody has carried out yet; the caller is the one who does."""
    found = [one for one in _of(folder, run_id, step_id) if one.place == place]
    return next((one for one in found if _is_first(folder / CARRIED_OUT / one.name)), None)


def let_go(folder: Path, name: str) -> None:
    """Whoever holds by this order may go on."""
    _go(folder, name).touch()


def may_go(folder: Path, name: str) -> bool:
    """Whether it was let go."""
    return _go(folder, name).exists()


def key_of(run_id: str, step_id: str) -> str:
    """Under which the orders of a step lie."""
    return f"{run_id}/{step_id}"


def _of(folder: Path, run_id: str, step_id: str) -> list[Order]:
    try:
        stat = (folder / FILE).stat()
    except FileNotFoundError:
        return []
    return [
        Order(**one) for one in _read(folder / FILE, stat.st_ino, stat.st_mtime_ns).get(key_of(run_id, step_id), [])
    ]


@lru_cache(maxsize=1)
def _read(file: Path, _inode: int, _mtime_ns: int) -> dict[str, list[dict[str, Any]]]:
    """All orders of a file that is put there whole and never changed: it is read once, however many places ask."""
    found: dict[str, list[dict[str, Any]]] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _go(folder: Path, name: str) -> Path:
    return folder / CARRIED_OUT / f"{name}.go"


def _is_first(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
