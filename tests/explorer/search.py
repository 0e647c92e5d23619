"""Every state that can be reached, once: breadth first, so that the first way to a wrong one is a shortest one.

From each of them everybody is lost, too: supervisors and new workers must then bring the run to its end, and rightly.
"""

import time
from collections import deque
from dataclasses import dataclass, field

from orchestrator.store.replies import Dispatch
from tests.explorer.moves import Bounds, Explorer, Label, Standing, State
from tests.explorer.operations import Answer, Op
from tests.explorer.outside import World
from tests.explorer.rules import Judge

Place = tuple[int, int, World, tuple[int, ...]]


@dataclass
class Found:
    """What an exploration has seen. violations, holes: what is wrong, and the shortest way there."""

    states: int = 0
    edges: int = 0
    ends: int = 0
    contents: int = 0
    books: int = 0
    calls: int = 0
    seconds: float = 0.0
    whole: bool = True
    violations: dict[str, list[str]] = field(default_factory=dict)
    holes: dict[str, list[str]] = field(default_factory=dict)
    outcomes: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return (
            f"{self.states} states, {self.edges} edges, {self.ends} ends ({', '.join(sorted(self.outcomes))}); "
            f"{self.calls} operations on {self.contents} contents of the store and {self.books} of the ledger; "
            f"{len(self.violations)} violations, {len(self.holes)} holes; {self.seconds:.1f} s"
        )


@dataclass
class Search:
    """One exploration. parents: of each state the one before, and what was done there; fine: where all ends well."""

    explorer: Explorer
    judge: Judge
    found: Found = field(default_factory=Found)
    parents: dict[State, tuple[State, Label] | None] = field(default_factory=dict)
    fine: set[Place] = field(default_factory=set)

    def run(self, first: State, most: int) -> Found:
        """Everything that can be reached, up to the first violation; most: states, beyond which it is too much."""
        began, found, explorer = time.process_time(), self.found, self.explorer
        self.parents[first] = None
        queue = deque([first])
        while queue and not found.violations and len(self.parents) < most:
            state = queue.popleft()
            self._look_at(state)
            queue.extend(self._new(state))
        found.states, found.whole, found.seconds = len(self.parents), not queue, time.process_time() - began
        found.contents, found.books = len(explorer.stored.contents), len(explorer.written.books)
        found.calls = len(explorer.stored.made) + len(explorer.written.made)
        return found

    def _look_at(self, state: State) -> None:
        explorer, found = self.explorer, self.found
        if explorer.is_over(state):
            found.ends += 1
            found.outcomes.add(explorer.content(state).run.status)
            wrong, holes = self.judge.end(explorer.content(state), explorer.book(state), state.world)
            for what in wrong:
                self._note(found.violations, what, state)
            for what in holes:
                self._note(found.holes, what, state)
        for what in recovered(explorer, state, self.judge, self.fine):
            self._note(found.violations, what, state, ("everybody is lost here",))

    def _new(self, state: State) -> list[State]:
        """The states that are reached from this one for the first time."""
        new = list[State]()
        for label, after, broken in self.explorer.moves(state):
            self.found.edges += 1
            for what in broken:
                self._note(self.found.violations, what, state, label)
            if after not in self.parents:
                self.parents[after] = (state, label)
                new.append(after)
        return new

    def _note(self, where: dict[str, list[str]], what: str, state: State, *last: Label) -> None:
        if what not in where:
            where[what] = [*_way(self.parents, state), *map(_said, last)]


def recovered(explorer: Explorer, state: State, judge: Judge, fine: set[Place]) -> list[str]:
    """Everybody is lost, and all messages: supervisors and new workers must bring the run to its end, and rightly."""
    now = explorer.unrenewed(state._replace(messages=(), procs=(), left=Bounds(0, 0)))
    if _place(now) in fine:
        return []
    path = list[Place]()
    explorer.calm = True
    try:
        while (place := _place(now)) not in fine:
            path.append(place)
            if explorer.is_over(now):
                wrong, _ = judge.end(explorer.content(now), explorer.book(now), now.world, lost=True)
                if wrong:
                    return wrong
                break
            now, broken = _on(explorer, now, path)
            if broken:
                return [f"afterwards, {what}" for what in broken]
    except Stuck as stuck:
        return [str(stuck)]
    finally:
        explorer.calm = False
    fine.update(path)
    return []


def _place(state: State) -> Place:
    return state.store, state.ledger, state.world, state.messages


class Stuck(Exception):
    """Nothing brings the run on."""


def _on(explorer: Explorer, state: State, path: list[Place]) -> tuple[State, list[str]]:
    """The first process that changes anything, from its beginning to its end."""
    for _, begun, broken in explorer.moves(state):
        after, wrong = _to_its_end(explorer, begun, broken)
        if wrong or _place(after) not in path:
            return after, wrong
    content, steps = explorer.content(state), explorer.content(state).steps.values()
    raise Stuck(f"I9: stuck, run {content.run.status}, steps {[step.status for step in steps]}")


def _to_its_end(explorer: Explorer, state: State, broken: list[str]) -> tuple[State, list[str]]:
    while state.procs and not broken:
        _, state, broken = next(explorer.steps(state, state.procs[0]))
    return explorer.unrenewed(state), broken


def _way(parents: dict[State, tuple[State, Label] | None], state: State) -> list[str]:
    way = list[str]()
    while (before := parents[state]) is not None:
        state, label = before
        way.append(_said(label))
    return way[::-1]


def _said(label: Label) -> str:
    return " ".join(map(_word, label))


def _word(part: object) -> str:
    if isinstance(part, Standing):
        return str(part.start)
    if isinstance(part, Op):
        named = {name: part.more[name] for name in ("step_id", "fence", "fact") if name in part.more}
        args = part.args if part.where in ("world", "ledger") else ()
        return f"{part.where}.{part.name}{named or args}"[:160]
    if isinstance(part, Answer):
        return f"= {part.error or getattr(part.value, 'word', part.value)}"[:160]
    if isinstance(part, Dispatch):
        return f"{part.kind} {part.step_id or ''}"
    return str(part)
