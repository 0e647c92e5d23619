"""From a stored step to the params an action is called with: references resolved, then the plain model, strictly."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from orchestrator.admission.catalogue import ActionSpec
from orchestrator.admission.graph import RESULT_KEY, reference_keys
from workers.outcomes import PermanentError


class StepInputInvalid(PermanentError):
    """The step's params cannot be made from the results it refers to. `path` is in plan coordinates."""

    kind = "step_input_invalid"


def bind(spec: ActionSpec, params: Mapping[str, Any], inputs: Mapping[str, str], *, index: int) -> BaseModel:
    """The params of one attempt. inputs: JSON text of the results that the params name, by step id.

    StepInputInvalid: a pointer leads nowhere, or the value found does not fit its field. Trying again cannot help:
    results do not change.
    """
    at = ("steps", index, "params")
    keys = reference_keys(params, spec.referable)
    values = {key: _referred(params[key], inputs, (*at, key)) for key in keys}
    reading = spec.reader.read({**params, **values}, at)
    if reading.params is None:
        first = reading.issues[0]
        raise StepInputInvalid(first.message, path=first.path, hint=_hint(keys))
    return reading.params


def _hint(keys: frozenset[str]) -> str:
    if keys:
        return f"compare the results that {', '.join(sorted(keys))} refer to with the params model"
    return "the stored step no longer fits the params model: was the action changed since the plan was admitted?"


def _referred(reference: dict[str, Any], inputs: Mapping[str, str], at: tuple[str | int, ...]) -> Any:
    step_id, pointer = reference[RESULT_KEY], reference["path"]
    try:
        return pointed(json.loads(inputs[step_id]), pointer)
    except LookupError:
        path = ".".join(str(part) for part in at)
        message = f"the result of {step_id!r} has nothing at {pointer[:100]!r}"
        raise StepInputInvalid(message, path=path, hint="look at the result: mandor run events shows it") from None


def pointed(value: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) leads to. LookupError: nothing."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        value = _item(value, name)
    return value


def _item(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value[name]
    is_index = name.isascii() and name.isdecimal() and (name == "0" or name[0] != "0")
    if isinstance(value, list) and is_index and len(name) < 10:
        return value[int(name)]
    raise LookupError(name)
