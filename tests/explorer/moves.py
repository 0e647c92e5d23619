"""What may happen next in a state: every operation, crash, delivery, sweep and decision.

A state is what the store, the ledger and the world hold, the messages under way, where each process stands, and what
may still go wrong. An operation reaches one of the three only, so it is done once on each content of that one, on the
real thing; what it does to a whole state is put together from there.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from orchestrator.store.replies import DUTIES, Dispatch, Renewed, StopNow
from orchestrator.store.replies import Lost as LeaseGone
from schemas.states import RUN_TERMINAL
from tests.explorer import lawful, rules
from tests.explorer.doors import Installation, Start
from tests.explorer.lawful import Place
from tests.explorer.neighbour import OWN, Neighbour
from tests.explorer.operations import Answer, Heard, Op, Renewal
from tests.explorer.outside import World, acted, changed, outcomes
from tests.explorer.stored import ASKED, KEPT, LIMITED, Call, Content, Stored
from tests.explorer.written import A_WHILE_AGO, LONG_AGO, Book, Written

WORKERS = 2
CONTROL = "c"  # of all who settle or supervise: none of them claims anything, so they need no names of their own
SENT = ("step", "undo", "settle")
COMMUTING = ("send", "write_letter", "late.postpone", "decision_done")
UNTOUCHED = ("ask", "end_run", "confirm_end")  # by anybody else, once a run is closed; but by others who settle
ONCE_IN_A_QUEUE = ("settle", "close", "late")  # a second one says nothing new


class Bounds(NamedTuple):
    """How much may go wrong, and be decided: crashes and freezes, messages delivered twice, acts that raise, cancels or
    deadlines, words of a person about a step in doubt, retries, undos that a person begins again.
    """

    faults: int = 1
    doubles: int = 1
    raises: int = 0
    cancels: int = 0
    words: int = 0
    retries: int = 0
    undos: int = 0

    def without(self, what: str) -> "Bounds":
        return self._replace(**{what: getattr(self, what) - 1})


class State(NamedTuple):
    """Contents, books, messages and processes by their numbers."""

    store: int
    ledger: int
    world: World
    messages: tuple[int, ...]
    procs: tuple[int, ...]
    left: Bounds


@dataclass(frozen=True)
class Standing:
    """Where a process stands. next: what it wants to do; None: it has come to its end."""

    number: int
    start: Start
    heard: tuple[Heard, ...]
    next: Op | None


Label = tuple[object, ...]
Move = tuple[Label, State, list[str]]


@dataclass
class Explorer:
    """One installation, and all that has been seen of it."""

    installation: Installation
    stored: Stored
    written: Written
    other: Neighbour
    calm: bool = False
    modelled: bool = True
    finest: bool = False
    controls: int = 1  # who settle or supervise at once
    standings: list[Standing] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    unlawful: list[list[str]] = field(default_factory=list)  # of each standing: what it wants next, and may not
    messages: list[Dispatch] = field(default_factory=list)
    deadline: bool = False
    _standing_numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    _heard: dict[tuple[int, str], int] = field(default_factory=dict)
    _message_numbers: dict[Dispatch, int] = field(default_factory=dict)
    _renewals_of: dict[tuple[str, str, str, int], Op] = field(default_factory=dict)

    # ---- numbers

    def message(self, message: Dispatch) -> int:
        if message not in self._message_numbers:
            self._message_numbers[message] = len(self.messages)
            self.messages.append(message)
        return self._message_numbers[message]

    def begun(self, start: Start) -> int:
        key: tuple[object, ...] = (start,)
        if key not in self._standing_numbers:
            self._standing_numbers[key] = self._play(start, (), Place())
        return self._standing_numbers[key]

    def told(self, number: int, heard: Heard) -> int:
        """Where a process stands that was answered this."""
        key = (number, heard.key)
        if key not in self._heard:
            before = self.standings[number]
            assert before.next is not None
            place = self.places[number].then(before.next, heard)
            self._heard[key] = self._play(before.start, (*before.heard, heard), place)
        return self._heard[key]

    def _play(self, start: Start, heard: tuple[Heard, ...], place: Place) -> int:
        wanted = self.installation.gate.play(start.name, self.installation.play(start), heard)
        self.standings.append(Standing(len(self.standings), start, heard, wanted))
        self.places.append(place)
        self.unlawful.append(place.refuses(wanted) if wanted and self.modelled else [])
        return len(self.standings) - 1

    # ---- what is where

    def content(self, state: State) -> Content:
        return self.stored.contents[state.store]

    def book(self, state: State) -> Book:
        return self.written.books[state.ledger]

    def processes(self, state: State) -> list[Standing]:
        return [self.standings[number] for number in state.procs]

    def holders(self, state: State) -> dict[str, tuple[str, str]]:
        """Which step each process holds, and whether to do it or to undo it."""
        return self.content(state).holders

    # ---- moves

    def moves(self, state: State) -> Iterator[Move]:
        """What may happen next, as far as anybody could tell it from the same at another time."""
        for label, begun, wrong in self._moves(state):
            after, broken = self.unrenewed(begun), wrong
            while not broken and (alone := self._alone(after)) is not None:
                yield from self._crashes_of(after, alone)
                ((_, moved, broken),) = self.steps(after, alone)
                after = self.unrenewed(moved)
            yield label, after, broken

    def unrenewed(self, state: State) -> State:
        """Nobody renews for a process that is gone: its lease has lapsed."""
        content = self.content(state)
        if not content.kept:
            return state
        there = {proc.start.name for proc in self.processes(state)}
        for name, (step_id, _) in content.holders.items():
            if name not in there and step_id in content.kept:
                state = state._replace(store=self.stored.age(state.store, KEPT, step_id))
        return state

    def _moves(self, state: State) -> Iterator[Move]:
        """Every next operation, crash, delivery and decision."""
        for number in dict.fromkeys(state.procs):
            yield from self.steps(state, number)
        yield from self._deliveries(state)
        yield from self._sweeps(state)
        yield from self._times(state)
        yield from self._renewals(state)
        yield from self._crashes(state)
        yield from self._decisions(state)

    def _alone(self, state: State) -> int | None:
        """A process whose next operation is the same whenever it is done: it is done at once, unless the process dies.

        A message waits in its queue for as long as one likes; a letter that is there is written by nobody again; nobody
        changes what is closed. And, unless everything is to be seen, a process reads at once what it reads next; until
        it acts upon that, anybody may come in between.
        """
        more = state.left.retries or state.left.undos or self.controls > 1
        closed = self.content(state).run.status in RUN_TERMINAL and not more
        for number in state.procs:
            op = self.standings[number].next
            assert op is not None
            at_once = op.name in COMMUTING or (closed and op.name in UNTOUCHED) or (op.is_read and not self.finest)
            if at_once:
                return number
        return None

    def steps(self, state: State, number: int) -> Iterator[Move]:
        """The next operation of one process; where it acts upon the world, all that may come of that."""
        standing = self.standings[number]
        op = standing.next
        assert op is not None
        if (op.where, op.name) == ("world", "act"):
            yield from self._acts(state, standing, op)
            return
        answer, after, broken = self._done(state, op)
        yield (standing, op, answer), self._went_on(after, number, answer), [*broken, *self.unlawful[number]]

    def _done(self, state: State, op: Op) -> tuple[Answer, State, list[str]]:
        if op.where == "store":
            answer, store, call = self.stored.do(state.store, op)
            broken = self._call(call) if call else []
            after = state._replace(store=store)
            if op.name != "ask":
                broken = [
                    *broken,
                    *rules.of_ending(op, answer, self.content(state), self.content(after), self.book(state)),
                ]
            return answer, after, broken
        if op.where == "ledger":
            answer, ledger, first = self.written.do(state.ledger, op)
            return answer, state._replace(ledger=ledger), self._rows(op, answer, state.ledger, ledger) if first else []
        if op.where == "world":
            return Answer(dict(state.world)[op.args[0]].did > 0), state, []
        if op.name == "depth":
            queued = sum(self.messages[number].queue == op.args[0] for number in state.messages)
            return Answer(queued), state, []
        return Answer(), self._sent(state, op.args[0]), []

    def _call(self, call: Call) -> list[str]:
        strange = self.other.of_store(call.op, call.answer, self.stored.others)
        return [*rules.of_call(call, modelled=self.modelled), *strange]

    def _rows(self, op: Op, answer: Answer, before: int, after: int) -> list[str]:
        was, now = self.written.books[before], self.written.books[after]
        unlawful = lawful.of_rows(op, was, now) if self.modelled else []
        return [*rules.of_rows(op, answer, now), *self.other.of_ledger(op, answer, now), *unlawful]

    def _sent(self, state: State, message: Dispatch) -> State:
        number = self.message(message)
        if message.kind in ONCE_IN_A_QUEUE and number in state.messages:
            return state
        return state._replace(messages=tuple(sorted((*state.messages, number))))

    def _went_on(self, state: State, number: int, heard: Heard) -> State:
        """A process has been answered; one that has come to its end is gone."""
        after = self.told(number, heard)
        standing, procs = self.standings[after], list(state.procs)
        procs.remove(number)
        if standing.next is not None:
            return state._replace(procs=tuple(sorted((*procs, after))))
        state = state._replace(procs=tuple(procs))
        if standing.start.what == "bury":  # what the child had in hand comes back
            assert standing.start.message is not None
            return self._sent(state, standing.start.message)
        return state

    def _acts(self, state: State, standing: Standing, op: Op) -> Iterator[Move]:
        broken, world = self._acted(state, op)
        broken += self.unlawful[standing.number]
        state_after = state._replace(world=world)
        yield (standing, op, "acts"), self._went_on(state_after, standing.number, Answer()), broken
        if state.left.raises <= 0:
            return
        for word, happens, answer in outcomes(op):
            if happens and op.args[3] == "transactional":
                continue  # what raises rolls back
            after = (state_after if happens else state)._replace(left=state.left.without("raises"))
            yield (standing, op, word), self._went_on(after, standing.number, answer), broken if happens else []

    def _acted(self, state: State, op: Op) -> tuple[list[str], World]:
        what, step_id, key, effect, fence, in_doubt, x = op.args
        strange = [] if x == OWN else [f"I11: {step_id} was given {x}"]
        if effect in ("pure", "transactional"):
            return strange, state.world
        book, seen = self.book(state), dict(state.world)[step_id]
        ended = fence <= book.closed_to(step_id)
        after = changed(state.world, step_id, acted(seen, what, key, effect, in_doubt=in_doubt, ended=ended))
        return strange + rules.of_act(what, step_id, effect, after, self.content(state), book), after

    def _deliveries(self, state: State) -> Iterator[Move]:
        """A message comes to a process, which does its first operation; once in a while it comes to another as well."""
        procs = self.processes(state)
        workers = sum(proc.start.what == "deliver" and proc.start.name != CONTROL for proc in procs)
        for number in dict.fromkeys(state.messages):
            message = self.messages[number]
            settles = message.kind == "settle"
            if self._controlled(state) if settles else workers >= WORKERS:
                continue
            name = CONTROL if settles else self._free_name(state)
            rest = list(state.messages)
            rest.remove(number)
            taken = state._replace(messages=tuple(rest))
            yield from self._begin(taken, Start("deliver", name, "", message), "delivered")
            if state.left.doubles > 0 and (not settles or self.controls > 1) and not self.calm:
                yield from self._begin(
                    state._replace(left=state.left.without("doubles")),
                    Start("deliver", name, "", message),
                    "delivered twice",
                )
            if state.left.faults > 0 and not self.calm:
                yield ("lost", message), taken._replace(left=state.left.without("faults")), []

    def _begin(self, state: State, start: Start, word: str) -> Iterator[Move]:
        number = self.begun(start)
        if self.standings[number].next is None:
            yield (word, start), state, []
            return
        state = state._replace(procs=tuple(sorted((*state.procs, number))))
        for (_, *label), after, broken in self.steps(state, number):
            yield (word, start, *label), after, broken

    def _free_name(self, state: State) -> str:
        """The first that nobody remembers, so that a claim has its process for ever."""
        used = {proc.start.name for proc in self.processes(state)} | self.content(state).names
        used |= {proc.start.about for proc in self.processes(state)}
        return next(name for name in (f"w{count}" for count in range(1, 100)) if name not in used)

    def _sweeps(self, state: State) -> Iterator[Move]:
        """A supervisor has a look, if there is anything to be seen."""
        if self._controlled(state):
            return
        for duty in (*DUTIES, "decisions"):
            if self._wanted(state, duty):
                yield from self._begin(state, Start("sweep", CONTROL, duty), "swept")

    def _controlled(self, state: State) -> bool:
        """Whether nobody more settles or supervises."""
        return sum(proc.start.name == CONTROL for proc in self.processes(state)) >= self.controls

    def _wanted(self, state: State, duty: str) -> bool:
        if duty == "decisions":  # as long as whoever decided is at it, the same would be done twice at most
            return self.book(state).undecided and not any(proc.start.name == "a" for proc in self.processes(state))
        found = self.content(state).due(duty)
        if duty == "undos" and any(row["updated_at"] <= A_WHILE_AGO for row in self.book(state).owed):
            return True
        if not found or duty not in ("dispatches", "settles", "undos"):
            return bool(found)
        under_way = self._under_way(state)  # a slow worker is none that lost its message
        return bool({step or "settle" for step in found} - under_way)

    def _under_way(self, state: State) -> set[str]:
        queued = [self.messages[number] for number in state.messages]
        taken = [proc.start.message for proc in self.processes(state) if proc.start.message]
        if self.controls > 1:  # whoever settles may be slow, too
            taken = [message for message in taken if message.kind != "settle"]
        return {message.step_id or message.kind for message in (*queued, *taken) if message.kind in SENT}

    def _times(self, state: State) -> Iterator[Move]:
        """The lease of one that is frozen lapses; other times come."""
        content = self.content(state)
        if state.left.faults > 0 and not self.calm:
            for proc in self.processes(state):
                step_id, _ = self.content(state).holders.get(proc.start.name, ("", ""))
                if step_id in content.kept:
                    lapsed = state._replace(store=self.stored.age(state.store, KEPT, step_id))
                    yield ("frozen: lease lapses", proc), lapsed._replace(left=state.left.without("faults")), []
        begun = any(row["state"] == "open" and row["updated_at"] > LONG_AGO for row in self.book(state).owed)
        if begun and not any(
            proc.start.message and proc.start.message.kind == "late" for proc in self.processes(state)
        ):
            yield ("whoever undid what came late is gone",), state._replace(ledger=self.written.age(state.ledger)), []
        if any(at == ASKED for _, at in content.waiting("waits")):
            yield ("nobody answers",), state._replace(store=self.stored.age(state.store, ASKED)), []
        if self.deadline and state.left.cancels > 0 and any(at == LIMITED for _, at in content.waiting("deadlines")):
            after = state._replace(store=self.stored.age(state.store, LIMITED), left=state.left.without("cancels"))
            yield ("the deadline comes",), after, []

    def _renewals(self, state: State) -> Iterator[Move]:
        """Who was frozen, or whose run is ending, renews its lease and hears of it."""
        content, holders = self.content(state), self.holders(state)
        for proc in self.processes(state):
            if proc.start.name not in holders:
                yield from self._renewed_in_vain(state, proc)
                continue
            if any(isinstance(each, Renewal) for each in proc.heard):
                continue
            step_id, kind = holders[proc.start.name]
            record = content.records[step_id]
            claim = record if kind == "do" else record["undo"]
            if claim["lease_end"] > rules.NOW and not (kind == "do" and content.run.status != "running"):
                continue
            yield self._renewed(state, proc, step_id, kind, claim["holder"])

    def _renewed_in_vain(self, state: State, proc: Standing) -> Iterator[Move]:
        """Who holds no more is told so; that it hears of it or not is all the same to others, so only what is wrong is
        a move."""
        held = self.places[proc.number].held
        if held is None:
            return
        step_id, fence, kind = held
        op = self._renewal(proc, step_id, kind, fence)
        answer, after, broken = self._done(state, op)
        if broken:
            yield (proc, op, answer), after, broken

    def _renewal(self, proc: Standing, step_id: str, kind: str, fence: int) -> Op:
        key = (proc.start.name, step_id, kind, fence)
        if key not in self._renewals_of:
            shard = self.stored.keys.shard_of(self.installation.ref.run_id)
            named = {"step_id": step_id, "fence": fence, "claim_id": proc.start.name, "kind": kind}
            self._renewals_of[key] = Op("store", "renew_lease", (shard, self.installation.ref, ()), named)
        return self._renewals_of[key]

    def _renewed(self, state: State, proc: Standing, step_id: str, kind: str, fence: int) -> Move:
        op = self._renewal(proc, step_id, kind, fence)
        answer, after, broken = self._done(state, op)
        reply = answer.value
        said: object = LeaseGone()
        if reply.word == "ok":
            said = Renewed(reply["lease_end"])
        elif reply.word == "stop":
            said = StopNow(reply["reason"])
        return (proc, op, answer), self._went_on(after, proc.number, Renewal(said)), broken

    def _crashes(self, state: State) -> Iterator[Move]:
        for number in dict.fromkeys(state.procs):
            yield from self._crashes_of(state, number)

    def _crashes_of(self, state: State, number: int) -> Iterator[Move]:
        """A host is lost with its message; of a child that is killed the parent sees to the claim."""
        if state.left.faults <= 0 or self.calm:
            return
        standing, rest = self.standings[number], list(state.procs)
        rest.remove(number)
        dead = state._replace(procs=tuple(rest), left=state.left.without("faults"))
        yield ("host lost", standing), self.unrenewed(dead), []
        message = standing.start.message
        if standing.start.what == "deliver" and message and message.kind in ("step", "undo"):
            parent = self.begun(Start("bury", f"p{standing.start.name}", standing.start.name, message))
            killed = dead._replace(procs=tuple(sorted((*rest, parent))))
            yield ("child killed", standing), self.unrenewed(killed), []

    def _decisions(self, state: State) -> Iterator[Move]:
        """A person decides, as a process of its own."""
        if self.calm or any(proc.start.what == "decide" for proc in self.processes(state)):
            return
        for bound, what, world in rules.decisions(self.content(state), self.book(state), state.world, state.left):
            if bound == "cancels" and self.deadline:
                continue
            after = state._replace(left=state.left.without(bound), world=world)
            yield from self._begin(after, Start("decide", "a", what), "decided")

    # ---- the end

    def is_over(self, state: State) -> bool:
        """Nothing is left to do, for anybody."""
        if state.procs or state.messages or self.book(state).undecided or self.book(state).owed:
            return False
        return not any(self.content(state).values[f"due:{duty}"] for duty in DUTIES)
