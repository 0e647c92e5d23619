"""The door's judgement: text in, admitted plan or issues out. Pure; each stage refuses before the next begins.

found_text   bytes, finish reason, extraction, grammar
read_value   depth, repeated keys, numbers, surrogates
read_plan    the models: shape of plan and steps, known actions, params
Draft.judge  graph, names, context, policy

The last three are the long way, which finds the words for every refusal; plans that plain.py knows to be good skip it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from orchestrator.admission.catalogue import ActionSpec, Catalogue, beyond_quota, policy_refusal
from orchestrator.admission.extract import Found, extract
from orchestrator.admission.graph import RESULT_KEY, Order, conflict_issues, reference_issues, reference_keys
from orchestrator.admission.params import issues_at
from orchestrator.admission.refusal import MAX_ISSUES, Kind, PayloadDrift, drift, excerpt
from schemas.canonical import NotCanonical, parse_json
from schemas.issues import Issue
from schemas.plan import MAX_STEPS, ExecutionPlan, InvalidGraph, ResolvedStep, with_defaults
from schemas.policy import Policy

MAX_DEPTH: Final = 64
FINISHED: Final = frozenset(
    {"stop", "end_turn", "stop_sequence", "tool_calls", "tool_use", "function_call", "completed"}
)
CUT: Final = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"})
_JSON_KINDS: Final = {
    "too_large": Kind.SIZE,
    "utf8": Kind.ENCODING,
    "too_deep": Kind.DEPTH,
    "duplicate_key": Kind.DUPLICATE_KEY,
    "not_finite": Kind.NUMBER,
    "integer_range": Kind.NUMBER,
    "surrogate": Kind.SURROGATE,
}


def refuse_any(issues: Iterator[Issue]) -> None:
    """Raise PayloadDrift if there are issues; no more of them are looked for than are shown."""
    first = list(islice(issues, MAX_ISSUES))
    if first:
        raise PayloadDrift(first)


# ---- text


def decoded(raw: object, max_bytes: int | None) -> str:
    """The answer as text. max_bytes: of its UTF-8 form; None for a text that was admitted before."""
    if not isinstance(raw, str | bytes):
        raise drift(Kind.TYPE, f"the answer is a {type(raw).__name__}; a planner answers with text")
    data = _encoded(raw, max_bytes)
    if max_bytes is not None and len(data) > max_bytes:
        raise _too_large(max_bytes)
    try:
        return data.decode()
    except UnicodeDecodeError as wrong:
        raise drift(Kind.ENCODING, f"the answer is not UTF-8: byte {wrong.start} does not fit") from None


def _encoded(raw: bytes | str, max_bytes: int | None) -> bytes:
    if max_bytes is not None and len(raw) > max_bytes:
        raise _too_large(max_bytes)
    try:
        return raw.encode() if isinstance(raw, str) else raw
    except UnicodeEncodeError as wrong:
        message = f"the answer holds half of a surrogate pair at character {wrong.start}"
        raise drift(Kind.ENCODING, message) from None


def _too_large(max_bytes: int) -> PayloadDrift:
    which = "plan_bytes of the policy, MANDOR_PLAN_BYTES"
    return drift(Kind.SIZE, f"the answer is larger than the {max_bytes} bytes that are allowed ({which})")


def refuse_unfinished(finish_reason: str | None) -> None:
    """An answer that its model did not end itself is no answer, even where it happens to parse."""
    if finish_reason is None or finish_reason.lower() in FINISHED:
        return
    if finish_reason.lower() in CUT:
        raise drift(Kind.CUT, f"the answer was cut where the model ran out of room ({excerpt(finish_reason)})")
    raise drift(Kind.UNFINISHED, f"the model did not finish its answer: it ended with {excerpt(finish_reason)}")


def found_text(raw: object, max_bytes: int | None, finish_reason: str | None) -> Found:
    """The plan's own text inside an answer."""
    text = decoded(raw, max_bytes)
    refuse_unfinished(finish_reason)
    return extract(text)


def read_value(found: Found) -> dict[str, Any]:
    """The value of the plan's text, with nothing in it that two readers could take differently."""
    try:
        value = parse_json(found.text, max_bytes=4 * len(found.text), max_depth=MAX_DEPTH, exact_integers=True)
    except NotCanonical as wrong:
        raise drift(_JSON_KINDS.get(wrong.kind, Kind.JSON), wrong.message, wrong.path) from None
    assert isinstance(value, dict)
    return value


# ---- models


@dataclass(frozen=True, slots=True)
class StepDraft:
    """A step whose models fit. references: the params' keys that name results; params: None where any do."""

    spec: ActionSpec
    references: frozenset[str]
    params: BaseModel | None
    raw: dict[str, Any]
    name_issues: tuple[Issue, ...] = ()

    def known_params(self) -> BaseModel:
        """The validated params; with references among them, an unvalidated model of the other fields."""
        if self.params is not None:
            return self.params
        given = {key: value for key, value in self.raw.items() if key not in self.references}
        return self.spec.params_model.model_construct(**given)

    def result_ids(self) -> tuple[str, ...]:
        """Ids of the steps whose results the params name, each once."""
        return tuple(sorted({self.raw[key][RESULT_KEY] for key in self.references}))


def read_plan(text: str, value: dict[str, Any], catalogue: Catalogue, max_steps: int) -> "Draft":
    """Plan and steps held against their models, strictly, from the JSON text."""
    refuse_any(_too_many(value, max_steps))
    plan, issues = _envelope(text, value)
    drafts, step_issues = _read_steps(value.get("steps"), catalogue)
    told = {issue.path for issue in step_issues}
    issues = [issue for issue in issues if issue.path not in told] + step_issues
    if plan is None or issues:
        raise PayloadDrift(sorted(issues, key=_by_step))
    return Draft(plan, tuple(drafts))


def _too_many(value: dict[str, Any], max_steps: int) -> Iterator[Issue]:
    steps = value.get("steps")
    limit = min(max_steps, MAX_STEPS)
    if isinstance(steps, list) and len(steps) > limit:
        which = "no setting raises it" if limit == MAX_STEPS else "max_steps of the policy, MANDOR_MAX_STEPS"
        yield Issue("steps", Kind.TOO_MANY_STEPS, f"{len(steps)} steps, at most {limit} are allowed ({which})")


def _envelope(text: str, value: dict[str, Any]) -> tuple[ExecutionPlan | None, list[Issue]]:
    try:
        return ExecutionPlan.model_validate_json(text, strict=True, extra="forbid"), []
    except ValidationError as refusal:
        return None, list(islice(issues_at(refusal, value), MAX_ISSUES))


def _read_steps(steps: Any, catalogue: Catalogue) -> tuple[list[StepDraft], list[Issue]]:
    drafts: list[StepDraft] = []
    issues: list[Issue] = []
    for index, raw in enumerate(steps if isinstance(steps, list) else ()):
        draft, faults = _read_step(index, raw, catalogue)
        issues += faults
        if draft is not None:
            drafts.append(draft)
        if len(issues) >= MAX_ISSUES:
            break
    return drafts, issues


def _read_step(index: int, raw: Any, catalogue: Catalogue) -> tuple[StepDraft | None, list[Issue]]:
    """Faults of the step's action and params; what is wrong with its shape, the plan's own model has said."""
    if not isinstance(raw, dict) or not isinstance(raw.get("action"), str):
        return None, []
    spec = catalogue.actions.get(raw["action"])
    if spec is None:
        return None, [_unknown_action(index, raw["action"], catalogue)]
    params = raw.get("params")
    return _read_params(index, spec, params) if isinstance(params, dict) else (None, [])


def _read_params(index: int, spec: ActionSpec, params: dict[str, Any]) -> tuple[StepDraft, list[Issue]]:
    references = reference_keys(params, spec.referable)
    reading = spec.reader.read(params, ("steps", index, "params"), references)
    names = tuple(issue for issue in reading.issues if issue.kind is Kind.NAME)
    others = [issue for issue in reading.issues if issue.kind is not Kind.NAME]
    return StepDraft(spec, references, reading.params, params, names), others


def _unknown_action(index: int, name: str, catalogue: Catalogue) -> Issue:
    known = ", ".join(sorted(catalogue.actions)[:MAX_ISSUES]) or "none"
    message = f"no action is called {excerpt(name)}; known: {known}"
    return Issue(f"steps.{index}.action", Kind.UNKNOWN_ACTION, message)


def _by_step(issue: Issue) -> tuple[int, int]:
    parts = issue.path.split(".", 2)
    if parts[0] != "steps":
        return (0, 0)
    return (1, int(parts[1])) if len(parts) > 1 and parts[1].isdecimal() else (0, 1)


# ---- graph, names, context, policy


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan whose models fit, before its graph, names, context and policy are judged."""

    plan: ExecutionPlan
    steps: tuple[StepDraft, ...]

    def judge(self, policy: Policy, context_hash: str | None) -> tuple[ResolvedStep, ...]:
        """The steps with ids and needs filled in, or PayloadDrift. context_hash None: not compared."""
        resolved = self._resolved()
        order = Order(resolved)
        refuse_any(self._graph_issues(resolved, order))
        refuse_any(issue for step in self.steps for issue in step.name_issues)
        refuse_any(self._context_issues(context_hash))
        refuse_any(policy_issues(self.steps, policy))
        return resolved

    def _resolved(self) -> tuple[ResolvedStep, ...]:
        try:
            return with_defaults(self.plan.steps)
        except InvalidGraph as wrong:
            raise PayloadDrift(Issue(i.path, Kind(i.kind), i.message) for i in wrong.issues) from None

    def _graph_issues(self, resolved: tuple[ResolvedStep, ...], order: Order) -> Iterator[Issue]:
        for step, draft in zip(resolved, self.steps, strict=True):
            if draft.references:
                yield from reference_issues(step, draft.references, order)
        written = {index: written_name(draft, index) for index, draft in enumerate(self.steps) if draft.spec.exclusive}
        yield from conflict_issues({index: name for index, name in written.items() if name is not None}, order)

    def _context_issues(self, context_hash: str | None) -> Iterator[Issue]:
        if context_hash is not None and self.plan.context_hash != context_hash:
            message = f"the plan was made for another context; this run's hash is {context_hash}"
            yield Issue("context_hash", Kind.CONTEXT, message)


def written_name(draft: StepDraft, index: int) -> str | None:
    """What the step alone may write, as its action names it; None where it writes nothing, or it is not known yet."""
    assert draft.spec.exclusive is not None
    try:
        return draft.spec.exclusive(draft.known_params())
    except Exception as fault:  # noqa: BLE001  (users' code may raise anything; the door answers in issues)
        if draft.params is None:  # it may have wanted a field that is a reference
            return None
        raise code_fault(draft, index, fault) from None


def written_out(draft: StepDraft, index: int) -> dict[str, Any]:
    """The step's params with every default written out."""
    try:
        return draft.spec.reader.complete(draft.raw)
    except Exception as fault:  # noqa: BLE001  (default factories are users' code)
        raise code_fault(draft, index, fault) from None


def code_fault(draft: StepDraft, index: int, fault: Exception) -> PayloadDrift:
    """A refusal because the action's own code failed over params that its model took."""
    message = f"the code of the action {draft.spec.name} raised {type(fault).__name__} over these params"
    return drift(Kind.MODEL, message, f"steps.{index}.params")


def policy_issues(steps: tuple[StepDraft, ...], policy: Policy) -> Iterator[Issue]:
    """Steps whose action, its effect class, its number, or its lack of a compensation the policy does not allow."""
    for index, draft in enumerate(steps):
        message = policy_refusal(draft.spec, policy)
        if message is not None:
            yield Issue(f"steps.{index}.action", Kind.POLICY, message)
    for index, message in beyond_quota([draft.spec for draft in steps], policy):
        yield Issue(f"steps.{index}.action", Kind.POLICY, message)
