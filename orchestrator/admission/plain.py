"""Plans that are plainly good, judged in one go: a few milliseconds less for nearly every plan.

Nothing is refused here. What is not certain - references, floats, odd characters, defaults that are made anew, and any
fault - is left to the long way (check.py), which decides and finds the words. A property test holds the two together.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, FailFast, Field, create_model

from orchestrator.admission.catalogue import ActionSpec, Catalogue, beyond_quota, policy_refusal
from orchestrator.admission.extract import Found
from orchestrator.admission.graph import RESULT_KEY
from schemas.base import Hash, StepId
from schemas.plan import MAX_STEPS, ResolvedStep
from schemas.policy import Policy

PARAMS_LEVEL: Final = 3  # plan, steps and step lie around params
# surrogates, as escapes or not, and characters that UTF-16 orders otherwise than code points
_ODD: Final = re.compile("\\\\u[dD]|[\ud800-\udfff\U00010000-\U0010ffff]")
_UUID: Final = r"^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Step(_Strict):
    """A step's keys but action and params, which each action says. The defaults only mark what was left out."""

    id: StepId = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlainPlan:
    """A plan that passed, and what there is to know of its steps: as they were sent, their actions, ids and needs."""

    plan_id: str
    context_hash: str
    raw: list[dict[str, Any]]
    specs: tuple[ActionSpec, ...]
    places: list[tuple[str, tuple[str, ...]]]

    def steps(self) -> Iterator[tuple[ResolvedStep, ActionSpec]]:
        """Each step with its action, defaults written out."""
        for index, (raw, spec, (step_id, needs)) in enumerate(zip(self.raw, self.specs, self.places, strict=True)):
            params = {**(spec.defaults or {}), **raw["params"]}
            yield ResolvedStep(index, step_id, raw["action"], params, needs), spec


def plainly(
    found: Found, catalogue: Catalogue, policy: Policy, context_hash: str | None, max_depth: int
) -> PlainPlan | None:
    """The plan, if there is certainly nothing wrong with it; None: nobody knows yet."""
    value = found.value
    if not (_fits(value, policy, context_hash) and is_plain(found.text)):
        return None
    params, raw = _validated(found.text, catalogue), value["steps"]
    if params is None or _deeper([step["params"] for step in raw], max_depth - PARAMS_LEVEL):
        return None
    specs = tuple(catalogue.actions[step["action"]] for step in raw)
    places = _places(raw)
    if places is None or not _allowed(specs, policy) or not _nothing_written_twice(specs, params):
        return None
    return PlainPlan(value["plan_id"].lower(), value["context_hash"], raw, specs, places)


# ---- the text


def is_plain(text: str) -> bool:
    """Whether every reader of JSON takes the text for the same value, and our writer needs no thought to spell it."""
    return not (_spelt_oddly(text) and _ODD.search(text)) and _has_plain_keys(text)


def _spelt_oddly(text: str) -> bool:
    return not text.isascii() or "\\u" in text


def _has_plain_keys(text: str) -> bool:
    """Every key once, and none that makes a reference, however it is escaped; also: no number but integers.

    Done by the parser, which hands over each object as a list of pairs.
    """
    objects: list[list[tuple[str, Any]]] = []
    others: list[str] = []
    json.loads(text, object_pairs_hook=objects.append, parse_float=others.append, parse_constant=others.append)
    keyed = list(map(dict, objects))
    return not others and sum(map(len, objects)) == sum(map(len, keyed)) and not _any_reference(keyed)


def _any_reference(objects: list[dict[str, Any]]) -> bool:
    return any(RESULT_KEY in one for one in objects)


def _deeper(inside: list[Any], levels: int) -> bool:
    """Whether some of these containers hold more than so many levels, their own counted."""
    for _ in range(levels):
        inside = [
            child
            for one in inside
            for child in (one.values() if type(one) is dict else one)
            if type(child) is dict or type(child) is list
        ]
        if not inside:
            return False
    return True


# ---- the models


def _validated(text: str, catalogue: Catalogue) -> list[Any] | None:
    """The params' models of all steps, or None where any model refused anything."""
    known = tuple((name, spec.params_model) for name, spec in catalogue.actions.items() if spec.defaults is not None)
    try:
        plan = whole_model(known).model_validate_json(text, strict=True, extra="forbid")
    except Exception:  # noqa: BLE001  (users' validators may raise anything; the long way finds the words for it)
        return None
    return [step.params for step in plan.steps]  # type: ignore[attr-defined]


@lru_cache(maxsize=16)
def whole_model(known: tuple[tuple[str, type[BaseModel]], ...]) -> type[BaseModel]:
    """One model of all plans that name these actions, by their params' models."""
    steps = [
        create_model("Step", __base__=_Step, action=(cast(Any, Literal[name]), ...), params=(model, ...))
        for name, model in known
    ]
    union: Any = reduce(or_, steps) if steps else _Step
    one: Any = Annotated[union, Field(discriminator="action")] if len(steps) > 1 else union
    return create_model(
        "Plan",
        __base__=_Strict,
        plan_id=(Annotated[str, Field(pattern=_UUID)], ...),
        context_hash=(Hash, ...),
        steps=(Annotated[list[one], FailFast(), Field(min_length=1)], ...),
    )


# ---- policy, context, graph


def _fits(value: Mapping[str, Any], policy: Policy, context_hash: str | None) -> bool:
    steps = value.get("steps")
    is_ours = context_hash is None or value.get("context_hash") == context_hash
    return is_ours and isinstance(steps, list) and len(steps) <= min(policy.max_steps, MAX_STEPS)


def _allowed(specs: tuple[ActionSpec, ...], policy: Policy) -> bool:
    kinds = {spec.name: spec for spec in specs}.values()
    return all(policy_refusal(spec, policy) is None for spec in kinds) and not any(beyond_quota(specs, policy))


def _nothing_written_twice(specs: tuple[ActionSpec, ...], params: list[Any]) -> bool:
    """Whether no two steps write the same; if they do, their order matters."""
    try:
        names = [spec.exclusive(one) for spec, one in zip(specs, params, strict=True) if spec.exclusive]
    except Exception:  # noqa: BLE001  (users' code may raise anything)
        return False
    return len(names) == len(set(names))


def _places(raw: list[dict[str, Any]]) -> list[tuple[str, tuple[str, ...]]] | None:
    """Id and needs of each step, or None where these do not fit together."""
    places: list[tuple[str, tuple[str, ...]]] = []
    known: set[str] = set()
    above: tuple[str, ...] = ()
    for index, step in enumerate(raw):
        step_id = step.get("id") or f"s{index}"
        needs = tuple(step["needs"]) if "needs" in step else above
        if step_id in known or not known.issuperset(needs) or (len(needs) > 1 and len(set(needs)) < len(needs)):
            return None
        known.add(step_id)
        places.append((step_id, needs))
        above = (step_id,)
    return places
