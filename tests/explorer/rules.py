"""What must hold: of each call, act and claim that ends, and when all is over. Numbers are those of the invariants."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from orchestrator import machine
from orchestrator.ledger import AlreadyOpen
from schemas.states import RUN_TERMINAL, RunStatus
from tests.explorer import lawful, model
from tests.explorer.operations import Answer, Op
from tests.explorer.outside import Seen, What, World, changed
from tests.explorer.stored import Call, Content
from tests.explorer.written import Book
from tests.support.stores import START

NOW = START
ENDS = frozenset({f"run.{status}" for status in RUN_TERMINAL} - {"run.cancelled"})
ENDING = ("fail_step", "hand_back", "expire_lease")
UNDO_ENDING = ("fail_undo", "expire_undo")


def of_call(call: Call, *, modelled: bool) -> list[str]:
    """What one call did to the store."""
    found = [*_versions(call), *_moves(call), *_decided(call), *_claims(call), *_slots(call)]
    return [*found, *(_meant(call) if modelled else ())]


def _meant(call: Call) -> list[str]:
    """By the model, which answers too, and by the specification."""
    return [*model.differences(call), *lawful.of_call(call)]


def _versions(call: Call) -> Iterator[str]:
    versions = [event.version for event in call.events]
    if versions != list(range(2, len(versions) + 2)) or call.version != 1 + len(versions):
        yield f"I8: {call.op.name} made version {call.version} with events {versions}"
    if len(versions) > 1:
        yield f"I8: {call.op.name} told {len(versions)} events"
    ended = call.before.run.status not in RUN_TERMINAL and call.after.run.status in RUN_TERMINAL
    told = sum(event.event in ENDS for event in call.events)
    if told > int(ended):
        yield f"I12: {call.op.name} told of an end {told} times"


def _moves(call: Call) -> Iterator[str]:
    before, after = call.before, call.after
    if before.run.status != after.run.status and f"{before.run.status}>{after.run.status}" not in machine.RUN_MOVES:
        yield f"I1: run {before.run.status} > {after.run.status}"
    for name, step in after.steps.items():
        was = before.steps[name].status
        moved = [status for step_id, status, _, _ in _told(call) if step_id == name]
        for status in moved:
            if was != status and f"{was}>{status}" not in machine.STEP_MOVES:
                yield f"I1: {name} {was} > {status}"
            was = status
        if was != step.status:
            yield f"I8: {call.op.name} moved {name} to {step.status} and told of {moved}"
    told = [event.fields["policy_hash"] for event in call.events if "policy_hash" in event.fields]
    if {*told, after.run.policy_hash} != {before.run.policy_hash}:
        yield "I7: the policy changed"


def _decided(call: Call) -> Iterator[str]:
    """Rule 6: a decision is of one generation; and it comes too late for what is complete."""
    run, said = call.before.run, call.op.more.get("generation", call.before.run.generation)
    if call.op.name not in ("cancel", "deadline") or call.before.number == call.after.number:
        return
    ended = run.status == "running" and call.after.run.status != "running"
    if ended and all(step.status == "completed" for step in call.before.steps.values()):
        yield f"rule 6: {call.op.name} ended a run whose steps are all completed"
    if said != run.generation:
        yield f"rule 6: {call.op.name} of generation {said} changed generation {run.generation}"


def _claims(call: Call) -> Iterator[str]:
    before, after = call.before, call.after
    if after.run.fence < before.run.fence:
        yield "I2: a fence fell"
    if call.op.name in ("complete_step", "complete_undo") and before.number != after.number:
        yield from _commit(call)
    if call.op.name in ("claim_step", "claim_undo") and call.answer.value.word == "granted":
        yield from _grant(call)


def _slots(call: Call) -> Iterator[str]:
    """A run has as many slots taken as it has steps, or undos, under way: one too many is a slot less for ever."""
    undos = [step.undo.state for step in call.after.steps.values() if step.status == "compensating" and step.undo]
    taken = [step.status for step in call.after.steps.values()] + undos
    under_way = sum(taken.count(word) for word in ("dispatched", "running"))
    counted = int(dict(call.after.values["state"]).get("active", "0"))
    if call.after.run.status not in RUN_TERMINAL and counted != under_way:
        yield f"{call.op.name} counts {counted} slots, and {under_way} are taken"


def _commit(call: Call) -> Iterator[str]:
    step, fence = call.before.steps[call.op.more["step_id"]], call.op.more["fence"]
    holder = step.undo.holder if step.undo else step.holder
    if holder != fence:
        yield f"I2: {call.op.name} was accepted from fence {fence}, the holder was {holder}"


def _grant(call: Call) -> Iterator[str]:
    before, fence = call.before, call.answer.value["fence"]
    step = before.steps[call.op.more["step_id"]]
    if fence <= before.run.fence:
        yield f"I2: fence {fence} was granted again"
    if call.answer.value["policy_hash"] != before.run.policy_hash:
        yield f"I7: {step.id} was granted under another policy"
    undoes = call.op.name == "claim_undo"
    if not undoes and not any((step.id, "running", fence) == (at, to, by) for at, to, _, by in _told(call)):
        yield f"I2: a claim on {step.id} was granted, and nobody told of it"
    if undoes:
        return
    if before.run.status != "running":
        yield f"I4: {step.id} started in a run that is {before.run.status}"
    if any(before.steps[need].status != "completed" for need in step.needs):
        yield f"I3: {step.id} started before what it needs"


def _told(call: Call) -> Iterator[tuple[str, str, int, int]]:
    """All that events said of steps."""
    return (move for event in call.events for move in event.steps)


def of_ending(op: Op, answer: Answer, before: Content, after: Content, book: Book) -> list[str]:
    """Rule 1 of the protocol: whoever ends a claim without a commit has closed its row, if anything may have begun."""
    if before.number == after.number or op.name not in (*ENDING, *UNDO_ENDING):
        return []
    kind = "undo" if op.name in UNDO_ENDING else "do"
    step, fence = before.steps[op.more["step_id"]], int(op.more["fence"])
    row = book.effects.get((step.id, kind))
    closed, begun = (row["closed_to"] >= fence, row["since"] == fence) if row else (False, False)
    if step.effect == "pure" or closed or not (begun or op.name.startswith("expire")):
        return []
    return [f"rule 1: {op.name} ended a claim on {step.id} ({answer.value.word}) whose row was not closed"]


def of_act(what: What, step_id: str, effect: str, world: World, content: Content, book: Book) -> list[str]:
    seen = dict(world)[step_id]
    if effect == "once" and seen.did > 1 and not seen.word:
        return [f"I6: {step_id} started its effect twice"]
    if effect == "keyed" and seen.did > 1:
        return [f"I6: {step_id} acted under two keys"]
    if what == "undo" and not seen.slipped:
        return list(_too_early(step_id, world, content, book))
    return []


def _too_early(step_id: str, world: World, content: Content, book: Book) -> Iterator[str]:
    """Where an undo was given up those of what it needed have their turn. One that is under way stays so when that undo
    is begun again; that none is begun then out of its turn is the model's business.
    """
    given_up = {name for kind, name, _ in book.letters if kind == "undo"}
    for other in content.steps.values():
        there = standing(world, book, other.id, other.effect)
        answered = other.status == "compensation_failed" or other.id in given_up or there.slipped or there.word
        if step_id in other.needs and there.stands and not answered:
            yield f"I10: {step_id} undone while {other.id}, which needed it, stands"


def of_rows(op: Op, answer: Answer, book: Book) -> list[str]:
    """What one transaction did to the ledger."""
    if op.name == "effects.open" and op.args[2] != "late" and isinstance(answer.value, AlreadyOpen):
        return [f"rule 3: an attempt was granted to {op.args[1]}, and its row can never be opened"]
    sold = {(row["step"], row["what"]) for row in book.rows("sales")}
    twice = [place for place in sold if book.sales(*place) > 1]
    return [f"I5: {what} of {step_id} was applied twice" for step_id, what in twice]


def standing(world: World, book: Book, step_id: str, effect: str) -> Seen:
    """What is outside of one step, wherever that is."""
    if effect != "transactional":
        return dict(world)[step_id]
    did, undone = book.sales(step_id, "do"), book.sales(step_id, "undo")
    return replace(dict(world)[step_id], did=did, undone=undone, stands=did > undone)


@dataclass(frozen=True)
class Judge:
    """When all is over. stop: nothing is undone if the run fails; faults: how many there may have been. It takes two, a
    process that is frozen past its last guard and then dies before it can tell, for an effect that nobody knows of.
    """

    stop: bool = False
    faults: int = 1

    def end(self, content: Content, book: Book, world: World, *, lost: bool = False) -> tuple[list[str], list[str]]:
        """Violations, and holes: what no guard of ours can stop. lost: everybody was, on the way."""
        wrong, holes = list(self._run(content, book)), list[str]()
        for step in content.steps.values():
            seen = standing(world, book, step.id, step.effect)
            for what in self._step(content.run.status, step, seen):
                given_up = any(kind == "undo" and name == step.id for kind, name, _ in book.letters)
                if seen.slipped and (given_up or lost or self.faults > 1):
                    holes.append(f"{what}, {'as a letter says' if given_up else 'silently'}")
                elif not seen.word:
                    wrong.append(what)
        return wrong, holes

    def _run(self, content: Content, book: Book) -> Iterator[str]:
        status = content.run.status
        if status not in RUN_TERMINAL:
            yield f"I9: it is {status}, and nothing is due"
        if (book.run["status"], book.run["generation"]) != (status, content.run.generation):
            yield f"I12: the store says {status}, the ledger {book.run['status']}"
        if status == RunStatus.COMPENSATION_FAILED:
            told = {step_id for kind, step_id, _ in book.letters if kind == "undo"}
            for step in content.steps.values():
                if step.status == "compensation_failed" and step.id not in told:
                    yield f"no letter about {step.id}, which could not be undone"

    def _step(self, run: str, step: Any, seen: Seen) -> Iterator[str]:
        if step.effect == "pure":
            return
        kept = step.status == "completed" and run in ("succeeded", "failed", "cancelled")
        given_up = step.status == "compensation_failed" or (step.status == "in_doubt" and self.stop)
        if step.status == "completed" and not seen.did:
            yield f"I10: {step.id} is completed, and its effect never happened"
        if seen.stands and not kept and not given_up:
            yield f"I10: the effect of {step.id} stands, which is {step.status}; the run is {run}"
        elif kept and not seen.stands:
            yield f"I10: {step.id} is completed and was undone"
        elif seen.undone > 1:
            yield f"I10: {step.id} was undone {seen.undone} times"
        elif seen.undone and step.status not in ("compensated", "compensation_failed"):
            yield f"I10: {step.id} was undone and is {step.status}"


def _given_up(content: Content, book: Book) -> Iterator[str]:
    """Undos that a person may have begun again: there is a letter, and what must not be undone twice was not undone."""
    lettered = {step_id for kind, step_id, _ in book.letters if kind == "undo"}
    for step in content.steps.values():
        row = book.effects.get((step.id, "undo"))
        in_doubt = step.effect == "once" and row is not None and row["state"] == "open"
        if step.undo and step.status == "compensation_failed" and step.id in lettered and not in_doubt:
            yield f"undo {step.id} {step.undo.fence} {content.run.generation}"


def decisions(content: Content, book: Book, world: World, left: Any) -> Iterator[tuple[str, str, World]]:
    """What a person may decide now: the bound it spends, the decision, and the world as the person found it."""
    run = content.run.status
    if left.cancels > 0 and run == "running":
        yield "cancels", "cancel", world
    if left.retries > 0 and run in ("failed", "cancelled") and book.run["ended_at"] is not None:
        yield "retries", "retry", world
    if left.undos > 0 and run in ("compensating", "compensation_failed"):
        yield from (("undos", what, world) for what in _given_up(content, book))
    if left.words > 0 and run in ("running", "failing", "failed", "cancelled"):
        for step in content.steps.values():
            if step.status == "in_doubt":
                seen = standing(world, book, step.id, step.effect)
                said = "landed" if seen.stands else "absent"
                yield (
                    "words",
                    f"{said} {step.id}",
                    changed(world, step.id, replace(dict(world)[step.id], word=not seen.stands)),
                )
