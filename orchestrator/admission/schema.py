"""The JSON schema of the plans a set of actions allows: what a model is shown, and what it is held to."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from schemas.plan import MAX_STEPS

if TYPE_CHECKING:
    from orchestrator.admission.catalogue import ActionSpec

_PLAN_ID = {"type": "string", "format": "uuid", "minLength": 36, "maxLength": 36}
_HASH = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_STEP_ID = {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"}
# narrower than the door by what JSON would write with a backslash: servers that hold a model to a pattern do so in the
# raw text, where a bare quote or line break would end the string
_POINTER = {"type": "string", "pattern": r'^(/([^~/"\\\x00-\x1f]|~[01])*)*$'}
_REFERENCE = {
    "type": "object",
    "description": "stands for the result of an earlier step that this one needs; path is a JSON pointer into it",
    "properties": {"$result": _STEP_ID, "path": _POINTER},
    "required": ["$result", "path"],
    "additionalProperties": False,
}


def plan_schema(specs: Sequence["ActionSpec"]) -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a plan that names these actions only."""
    params, definitions = _params_schemas(specs)
    steps = [_step_schema(spec, params[spec.params_model]) for spec in specs]
    plan = _closed_object(
        {
            "plan_id": _PLAN_ID,
            "context_hash": _HASH,
            "steps": {"type": "array", "minItems": 1, "maxItems": MAX_STEPS, "items": {"anyOf": steps}},
        }
    )
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "ExecutionPlan", **plan} | definitions


def _params_schemas(specs: Sequence["ActionSpec"]) -> tuple[dict[type[BaseModel], Any], dict[str, Any]]:
    models: list[Any] = [(spec.params_model, "validation") for spec in specs]
    schemas, whole = models_json_schema(models)
    definitions = whole.get("$defs", {})
    for definition in definitions.values():
        _close(definition)
    for spec in specs:
        _open_references(spec, definitions[_name(schemas[spec.params_model, "validation"])])
    return {spec.params_model: schemas[spec.params_model, "validation"] for spec in specs}, {"$defs": definitions}


def _name(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).rsplit("/", 1)[-1]


def _close(definition: dict[str, Any]) -> None:
    """Unknown keys are refused at the door whatever the model says; the schema says so too."""
    if "properties" in definition:
        definition["additionalProperties"] = False


def _open_references(spec: "ActionSpec", definition: dict[str, Any]) -> None:
    for key in spec.referable:
        plain = definition["properties"][key]
        if _REFERENCE not in plain.get("anyOf", ()):
            definition["properties"][key] = {"anyOf": [plain, _REFERENCE]}


def _step_schema(spec: "ActionSpec", params: dict[str, Any]) -> dict[str, Any]:
    optional = {"id": _STEP_ID, "needs": {"type": "array", "items": _STEP_ID, "uniqueItems": True}}
    step = _closed_object({"action": {"const": spec.name}, "params": params}, optional)
    return step | {"description": spec.summary} if spec.summary else step


def _closed_object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = required | (optional or {})
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
