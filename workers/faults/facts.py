"""What is known of a run when all is over: from ledger, store and log, brought together for the invariants."""

import json
from collections.abc import Iterator, Mapping

from orchestrator import bound
from orchestrator.errors import MandorError, NotFound
from orchestrator.ledger import LedgerRun
from orchestrator.store.views import StepState
from schemas.dead_letter import DeadLetter, DeadLetterKind
from schemas.run import RunView
from workers.binding import bind
from workers.faults.effects import UNDO
from workers.faults.floor import Floor
from workers.faults.ground import TOLD_S
from workers.faults.known import RunFacts, StepFacts
from workers.faults.log import fingerprint
from workers.faults.parts import has_probe, has_undo, is_confined
from workers.faults.scene import Scene
from workers.registry import registry

LETTERS = 1000


class OtherSteps(MandorError):
    """A run has another plan than the rehearsal had, so nobody can say what was to happen to it."""

    kind = "other_steps"


def gather(floor: Floor, scene: Scene) -> list[RunFacts]:
    """The facts of all runs of a scene, once everything that is on its way to ledger and log has arrived."""
    floor.until_told()
    return [_of(floor, run_id) for run_id in scene.run_ids()]


def _of(floor: Floor, run_id: str) -> RunFacts:
    try:
        row, view = floor.lookup.find(run_id), floor.lookup.run(run_id)
    except NotFound:
        return RunFacts(run_id, "unknown", 0, "", (), (), ())
    floor.until(lambda: _told(floor, view) or _let_go(floor, run_id), f"the history of {run_id} in the ledger", TOLD_S)
    letters: dict[str, tuple[str, ...]] = {}
    for letter in floor.ledger.letters(LETTERS, run_id=run_id):
        step_id = letter.step_id or ""
        letters[step_id] = (*letters.get(step_id, ()), said_by(letter))
    return RunFacts(
        run_id=run_id,
        status=view.status,
        reason=view.reason or "",
        version=view.version,
        policy_hash=row.policy_hash,
        steps=tuple(_steps(floor, row, view)),
        events=tuple(floor.ledger.history.events(run_id)),
        acts=tuple(floor.log.acts(run_ids=[run_id])),
        ended_at=view.ended_at,
        bound_at=_bound(floor, row),
        letters=letters,
        late=floor.ledger.late.refused(run_id),
        landed=frozenset(floor.ledger.transactional.landed(run_id)),
        told=_told(floor, view),
    )


def said_by(letter: DeadLetter) -> str:
    """Its reason in a word."""
    return UNDO if letter.kind == DeadLetterKind.UNDO else letter.reason


def _told(floor: Floor, view: RunView) -> bool:
    events = floor.ledger.history.events(view.run_id)
    return bool(events) and events[-1].version >= view.version


def _let_go(floor: Floor, run_id: str) -> bool:
    """Whether the store has forgotten the run when it had ended: what was not told by then never will be."""
    row = floor.lookup.find(run_id)
    return row.ended_at is not None and floor.lookup.state(row) is None


def _bound(floor: Floor, row: LedgerRun) -> int | None:
    ref, state = floor.lookup.ref(row), floor.lookup.state(row)
    return None if state is None else bound.ended_by(state, floor.store.views.steps(ref), floor.settings)


def _steps(floor: Floor, row: LedgerRun, view: RunView) -> Iterator[StepFacts]:
    """Each as it stands, with the limits and the class that the rehearsal has shown."""
    rehearsed = {step.id: step for step in floor.steps}
    results = floor.store.views.results(floor.lookup.ref(row))
    for step in view.steps:
        known = rehearsed.get(step.id)
        if known is None:
            raise OtherSteps(f"run {view.run_id} has a step {step.id}, the rehearsal had {', '.join(rehearsed)}")
        text = floor.store.views.step_text(floor.lookup.ref(row), step.id)
        inputs = inputs_of(known, text, results)
        about = (step.id, step.action, known.effect, step.needs, step.status, known.max_attempts, inputs)
        confined = is_confined(step.action, row.policy_text, results.get(step.id))
        yield StepFacts(*about, has_undo=has_undo(known), confined=confined, has_probe=has_probe(known))


def inputs_of(step: StepState, text: str | None, results: Mapping[str, str]) -> str | None:
    """Fingerprint of what the step's action must have seen; None where that cannot be said any more."""
    if text is None:
        return None
    try:
        spec = registry.find_action(step.action).spec
        return fingerprint(bind(spec, json.loads(text)["params"], results, index=step.index))
    except (MandorError, KeyError, ValueError):
        return None
