"""Writes down what the executable specification of the step protocol allows: `lawful.json`, which says more about it.

    python -m tests.explorer.specification FOLDER        the folder with its spec.py and explore.py

Every script of it is watched while it explores runs of one to three steps of every class; its rows are asked about
every row there may be. Some minutes.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Final

CLASSES: Final = ("pure", "idempotent", "transactional", "keyed", "once")
ENDINGS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"failure": "stop"},
    {"doubt": "wait"},
    {"failure": "stop", "doubt": "wait"},
)
CHAINS: Final = (  # classes, needs, attempts, and what may go wrong: faults, raises, decisions
    *((f"{effect},pure", ((), (0,)), attempts, (1, 2, 1)) for effect in CLASSES[1:] for attempts in (1, 2)),
    ("pure,transactional", ((), ()), 1, (1, 1, 0)),
    ("keyed,pure,keyed", ((), (0,), (1,)), 1, (1, 0, 1)),
    ("keyed,keyed,pure", ((), (0,), (1,)), 1, (2, 1, 0)),
)
PLAIN: Final = ("claim_step", "complete_step", "end_claim", "settle", "leave_running", "claim_undo", "complete_undo")
FENCE: Final = 5  # of whoever acts upon a row
RAISED: Final = ("raises NoEffect", "raises, nothing done", "effect, then raises", "effect, then Snooze")


@dataclass
class Watch:
    """The specification with every script watched. config: of the run that is being explored."""

    spec: Any
    explore: Any
    config: Any = None
    store: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    order: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def begin(self) -> None:
        """From here on everything is noted."""
        self.spec.NAMES = self.explore.NAMES = "ABC"
        for name in (*PLAIN, "resolve", "retry"):
            self._script(name, partial(_plainly, name))
        self._snoozes()
        self._script("conclude", lambda given: f"{'back' if len(given) > 4 and given[4] else 'end'} {given[3]}")
        self._script("conclude_undo", lambda given: f"undo_end {given[3]}")
        self._processes()

    def _script(self, name: str, called: Callable[[tuple[Any, ...]], str]) -> None:
        original = getattr(self.spec, name)

        def script(state: Any, *given: Any) -> Any:
            reply = original(state, *given)
            after = reply if isinstance(reply, self.spec.State) else reply[0]
            before, left = self.told(state), self.told(after)
            if before != left:
                self.store[called(given)].add(f"{before} > {left}")
            return reply

        setattr(self.spec, name, script)

    def _snoozes(self) -> None:
        """No process there has a pure step snooze. Its script is asked what would come of it."""
        conclude = self.spec.conclude

        def asked(state: Any, config: Any, number: int, fence: int, fact: str, *back: bool) -> Any:
            if config.classes[number] == "pure" and fact == "none" and state.steps[number].do.holder == fence:
                after = self.told(conclude(state, config, number, fence, fact, True)[0])
                self.store["back none"].add(f"{self.told(state)} > {after}")
            return conclude(state, config, number, fence, fact, *back)

        self.spec.conclude = asked

    def _processes(self) -> None:
        original = self.spec.proc_moves

        def proc_moves(state: Any, config: Any, process: Any) -> Any:
            moves = original(state, config, process)
            if process.role == "worker":
                effect = config.classes[process.step]
                for label, _, following, _ in moves:
                    self._note(f"{process.kind} {effect}", process.pc, label.partition(").")[2], following)
            return moves

        self.spec.proc_moves = proc_moves

    def _note(self, claim: str, at: str, label: str, following: Any) -> None:
        said = "act=raises" if label in RAISED else f"{at}={label.rpartition('=')[2]}"
        said = "open=away" if "ledger away" in label else said
        then = following.pc if following else "over"
        if claim.endswith(" pure") and then == "close":  # it has no row, so that closing is nothing
            then = "end"
        self.order[claim].add(f"{said if at != 'end' else 'end='} > {then}")
        if at in ("open", "act"):
            self.order[claim] |= {f"granted > {'open' if claim.split()[1] in self.spec.ROWED else 'act'}"}

    # ---- in the words of both

    def told(self, state: Any) -> str:
        run = "ended" if state.run in ("failed", "cancelled") else state.run
        return " | ".join([run, *(self._step(state, number) for number in range(len(state.steps)))])

    def _step(self, state: Any, number: int) -> str:
        step, config = state.steps[number], self.config
        head = config.classes[number] + "".join(f"<{need}" for need in config.needs[number])
        if state.run == "compensating" and self.spec.owed(config, number, step):
            undo, most = step.undo, max(2, config.attempts)
            return _words(head, "owed", undo.holder and "held", undo.dead and "dead", undo.tries >= most and "last")
        if step.status not in ("pending", "ready", "running"):
            return _words(head, step.status)
        dead, last = step.status == "running" and step.do.dead, step.do.tries >= config.attempts
        return _words(head, step.status, step.touched and "touched", last and "last", dead and "dead")

    # ---- what is explored

    def go_through(self, needs: tuple[tuple[int, ...], ...], left: tuple[int, ...], **given: Any) -> None:
        """Every state of one kind of run."""
        self.config = self.explore.config(**given)._replace(needs=needs)
        bounds = self.spec.Left(*(*left, 0, 0, 0)[:5])
        states, _, wrong, _, whole = self.explore.explore(self.config, bounds, limit_s=900, stop_at_first=False)
        assert whole, "not all seen"
        assert not wrong, wrong
        print(given, needs, states, file=sys.stderr)  # noqa: T201

    def rows(self) -> dict[str, set[str]]:
        """Every change of a row, as the acting fence sees it."""
        spec, found = self.spec, defaultdict[str, set[str]](set)
        states, fences = ("none", "open", "landed"), (FENCE - 1, FENCE, FENCE + 1)
        for state, since, closed, late in product(states, fences, (0, *fences), (False, True)):
            row = spec.Row(state, since if state == "open" else 0, closed, late)
            for name, after in self._transactions(row):
                if _row(row) != _row(after):
                    found[name].add(f"{_row(row)} > {_row(after)}")
        return found

    def _transactions(self, row: Any) -> Iterator[tuple[str, Any]]:
        spec = self.spec
        for effect in spec.ROWED:
            yield f"open {effect}", spec.open_row(row, FENCE, effect)[0]
        yield "land", spec.land_row(row, FENCE)[0]
        yield "close", spec.close_row(row, FENCE, False)[0]
        yield "void", spec.close_row(row, FENCE, True)[0]
        if row.state == "open":
            yield "found", row._replace(state="landed")
            yield "found", row._replace(state="none", since=0)
        if row.state != "landed":  # a person's word closes what nobody has
            closed = spec.close_row(row, FENCE, False)[0]
            yield "word", closed._replace(state="landed")
            yield "word", closed._replace(state="none", since=0)


def _plainly(name: str, _: tuple[Any, ...]) -> str:
    return name


def _row(row: Any) -> str:
    whose = ("by this" if row.since == FENCE else "by another") if row.state == "open" else False
    return _words(row.state, whose, row.closed >= FENCE and "closed", row.late and "late")


def _words(*parts: Any) -> str:
    return " ".join(part for part in parts if isinstance(part, str))


def written(folder: str) -> dict[str, Any]:
    """All facts of the specification in this folder."""
    sys.path.insert(0, folder)
    watch = Watch(import_module("spec"), import_module("explore"))
    rows = watch.rows()
    watch.begin()
    for effect, attempts, ending in product(CLASSES, (1, 2, 3), ENDINGS):
        left = (1, 1, 1, 1, 1) if ending else (2, 1, 1)
        watch.go_through(((),), left, cls=effect, attempts=attempts, idem_lands=1, **ending)
    for effect, attempts in product(watch.spec.ROWED, (1, 2)):
        watch.go_through(((),), (1, 1), cls=effect, attempts=attempts, probe=1)
    for classes, needs, attempts, left in CHAINS:
        watch.go_through(needs, left, cls=classes, attempts=attempts, idem_lands=1)
    return {
        "made": {"by": digest(Path(__file__)), "from": digest(Path(folder, "spec.py"), Path(folder, "explore.py"))},
        "rules": sorted(watch.spec.RULES | watch.spec.READINGS),
        "store": {name: merged(moves) for name, moves in sorted(watch.store.items())},
        "rows": {name: sorted(moves) for name, moves in sorted(rows.items())},
        "order": {name: sorted(moves) for name, moves in sorted(watch.order.items())},
    }


def merged(moves: set[str]) -> dict[str, str]:
    """Moves that differ in the class of the first step alone are one, with `*` for it, and name the classes."""
    classes = defaultdict[str, list[str]](list)
    for effect, move in product(CLASSES, sorted(moves)):
        before, _, after = move.partition(" > ")
        if before.split(" | ")[1].partition(" ")[0] == effect:
            classes[f"{_any(before, effect)} > {_any(after, effect)}"].append(effect)
    return {move: " ".join(found) for move, found in sorted(classes.items())}


def _any(told: str, effect: str) -> str:
    return told.replace(f" | {effect} ", " | * ", 1)


def digest(*paths: Path) -> str:
    """Of what the facts were made with, to see that it is another by now."""
    return sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


if __name__ == "__main__":
    place = Path(__file__).with_name("lawful.json")
    place.write_text(json.dumps(written(sys.argv[1]), indent=1) + "\n", encoding="utf-8")
