"""Open runs held against the actions and planners that are installed here: which of them would this release strand?

A run was admitted by the release of its day. What a worker of another one could not carry out is found before that one
is rolled out: steps still to run, and steps that may have to be undone.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, Literal

from pydantic import BaseModel, ValidationError

from orchestrator.admission import ActionSpec, Catalogue
from orchestrator.admission.graph import reference_keys
from orchestrator.ledger import Ledger, LedgerRun
from orchestrator.lookup import Lookup
from orchestrator.recalled import recall
from orchestrator.store import Store
from orchestrator.store.new import NewStep, plan_from_text
from schemas.canonical import canonical_text
from schemas.ids import RunRef
from schemas.policy import OnFailure, Policy
from schemas.states import RUN_TERMINAL, EffectClass, RunStatus, StepStatus

PAGE: Final = 200
MOST: Final = 20  # of one run; more would say nothing new
Need = Literal["run", "undo"]
Stands = dict[str, tuple[StepStatus, Callable[[], str | None]]]
_TO_RUN: Final = frozenset(
    {
        StepStatus.PENDING,
        StepStatus.WAITING_APPROVAL,
        StepStatus.READY,
        StepStatus.DISPATCHED,
        StepStatus.RUNNING,
        StepStatus.BACKOFF,
    }
)
_MAY_BE_UNDONE: Final = frozenset({StepStatus.COMPLETED, StepStatus.IN_DOUBT, StepStatus.COMPENSATING})
_ENDING: Final = frozenset({RunStatus.FAILING, RunStatus.COMPENSATING})  # nothing more of it starts


class Trouble(StrEnum):
    """What keeps a worker of this release from carrying a run on."""

    PLANNER = "unknown_planner"
    ACTION = "unknown_action"
    EFFECT = "changed_effect"
    PARAMS = "params"
    PROBE = "no_probe"
    COMPENSATION = "no_compensation"
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class Finding:
    """need: what the step is needed for, to be run or to be undone; path: in plan coordinates."""

    kind: Trouble
    message: str
    path: str
    need: Need
    step_id: str | None = None
    action: str | None = None


@dataclass(frozen=True, slots=True)
class Stranded:
    """A run that could not go on. more: how many findings there are besides."""

    run_id: str
    status: RunStatus
    findings: tuple[Finding, ...]
    more: int


@dataclass(frozen=True, slots=True)
class OpenStep:
    """A step as it was admitted, and where it stands. result: reads what it returned, None where that is unknown."""

    admitted: NewStep
    status: StepStatus
    result: Callable[[], str | None]


def look(ledger: Ledger, store: Store, namespace: str, catalogue: Catalogue) -> Iterator[Stranded | None]:
    """For each open run, in the order of their ids, what would strand it, or None. They are read page by page."""
    lookup, after = Lookup(ledger, store), None
    while page := ledger.open_runs(after, PAGE, namespace):
        yield from (_looked_at(ledger, lookup, store, row, catalogue) for row in page)
        after = page[-1].run_id


def _looked_at(ledger: Ledger, lookup: Lookup, store: Store, row: LedgerRun, catalogue: Catalogue) -> Stranded | None:
    state = lookup.state(row)
    status = RunStatus(state.status) if state else row.status
    if status in RUN_TERMINAL:
        return None  # the ledger is about to hear of it
    plan = ledger.history.admitted_plan(row.run_id, state.generation if state else row.generation)
    if plan is None:
        return _stranded(row, status, planner_findings(row.planner, catalogue))
    stands = _stands(store, lookup.ref(row)) if state else _told(ledger, row)
    steps = [
        OpenStep(step, *stands.get(step.id, (StepStatus.PENDING, lambda: None))) for step in plan_from_text(plan).steps
    ]
    policy = Policy.model_validate_json(row.policy_text)
    return _stranded(row, status, findings(steps, status, policy.failing, catalogue))


def _stands(store: Store, ref: RunRef) -> Stands:
    views = store.views
    return {step.id: (StepStatus(step.status), partial(views.result, ref, step.id)) for step in views.steps(ref)}


def _told(ledger: Ledger, row: LedgerRun) -> Stands:
    """Of a run that the store has lost: as the ledger was told of it."""
    told = recall(ledger, row)
    steps, results = (told.steps, told.results) if told else ([], {})
    return {step.id: (StepStatus(step.status), partial(results.get, step.id)) for step in steps}


def _stranded(row: LedgerRun, status: RunStatus, found: Iterable[Finding]) -> Stranded | None:
    every = tuple(found)
    return Stranded(row.run_id, status, every[:MOST], len(every[MOST:])) if every else None


# ---- decisions, without any reading


def planner_findings(planner: str | None, catalogue: Catalogue) -> Iterator[Finding]:
    """Of a run that has no plan yet. A ready plan, of which nobody is named, goes through the door as it is."""
    if planner is not None and planner not in catalogue.planners:
        yield Finding(Trouble.PLANNER, f"no planner is called {planner}", "planner", "run")


def findings(
    steps: Iterable[OpenStep], status: RunStatus, failing: OnFailure, catalogue: Catalogue
) -> Iterator[Finding]:
    """Of a run that stands so, and is undone, or not, when it fails."""
    for step in steps:
        need = need_of(step, status, failing)
        if need is not None:
            yield from step_findings(step, need, catalogue)


def need_of(step: OpenStep, status: RunStatus, failing: OnFailure) -> Need | None:
    """What the step's action may still be wanted for."""
    if step.status in _TO_RUN and (status not in _ENDING or step.status is StepStatus.RUNNING):
        return "run"
    undone = failing is OnFailure.COMPENSATE and step.admitted.effect != EffectClass.PURE
    return "undo" if undone and step.status in _MAY_BE_UNDONE else None


def step_findings(step: OpenStep, need: Need, catalogue: Catalogue) -> Iterator[Finding]:
    """What keeps one step from being run, or undone."""
    admitted = step.admitted
    spec = catalogue.actions.get(admitted.action)
    at = f"steps.{admitted.index}"
    if spec is None:
        yield _finding(Trouble.ACTION, f"no action is called {admitted.action}", f"{at}.action", need, admitted)
        return
    if spec.effect != admitted.effect:
        message = f"it was admitted as {admitted.effect}, and is declared as {spec.effect}"
        yield _finding(Trouble.EFFECT, message, f"{at}.action", need, admitted)
    for kind, message in _taken_away(spec, admitted, need):
        yield _finding(kind, message, f"{at}.action", need, admitted)
    for path, message in _params_refused(spec, admitted):
        yield _finding(Trouble.PARAMS, message, path, need, admitted)
    if need == "undo" and (spec.has_compensation or callable(spec.confined)):
        for message in _result_refused(spec.result_model, step.result):
            yield _finding(Trouble.RESULT, message, at, need, admitted)


def _taken_away(spec: ActionSpec, admitted: NewStep, need: Need) -> Iterator[tuple[Trouble, str]]:
    """What the action had when the step was admitted."""
    if need == "run" and admitted.probe and not spec.has_probe:
        yield Trouble.PROBE, "its outcome could be found out when it was admitted, and has no probe any more"
    if need == "undo" and admitted.compensation and not spec.has_compensation:
        yield Trouble.COMPENSATION, "it could be undone when it was admitted, and has no compensation any more"


def _finding(kind: Trouble, message: str, path: str, need: Need, admitted: NewStep) -> Finding:
    return Finding(kind, message, path, need, admitted.id, admitted.action)


def _params_refused(spec: ActionSpec, admitted: NewStep) -> Iterator[tuple[str, str]]:
    """The stored params against today's model. What a reference will bring is not known; that it may stand there is."""
    params: dict[str, Any] = json.loads(admitted.text)["params"]
    references = reference_keys(params, spec.referable)
    for issue in spec.reader.read(params, ("steps", admitted.index, "params"), references).issues:
        yield issue.path, issue.message


def _result_refused(model: type[BaseModel] | None, result: Callable[[], str | None]) -> Iterator[str]:
    """The stored result as the compensation would be given it."""
    text = result() if model is not None else None
    if model is None or text is None:
        return
    try:
        model.model_validate_json(text)
    except ValidationError as refusal:
        first = refusal.errors(include_url=False, include_context=False, include_input=False)[0]
        where = canonical_text(list(first["loc"]))
        yield f"its result does not fit {model.__name__} any more: {where}: {first['msg']}"
