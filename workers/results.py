"""What an action returned, as the one JSON text that is stored."""

from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from orchestrator.settings import env_name
from schemas.canonical import NotCanonical, canonical_text
from schemas.issues import dotted
from workers.outcomes import PermanentError


class ResultRefused(PermanentError):
    """The action returned something that cannot be its result. What it did outside has been done."""

    kind = "result_refused"


class ResultTooLarge(ResultRefused):
    """The result exceeds the cap."""

    kind = "result_too_large"


def result_text(value: Any, model: type[BaseModel] | None, max_bytes: int) -> str:
    """Canonical JSON of a result: an instance of the declared model or its fields, else anything JSON can say.

    ResultRefused names where in the result the fault lies; ResultTooLarge names size, limit and setting.
    """
    text = _canonical(_fitting(value, model))
    size = len(text.encode())
    if size > max_bytes:
        which = f"result_bytes of the policy, {env_name('result_bytes')}"
        raise ResultTooLarge(
            f"the result has {size} bytes, the limit is {max_bytes} ({which})",
            path="result",
            hint="return less, and put what is large into the run's workspace",
        )
    return text


def _fitting(value: Any, model: type[BaseModel] | None) -> Any:
    """The value as plain JSON types, held against the model the action declared."""
    if model is None or isinstance(value, model):
        return _plain(value)
    try:
        return _plain(model.model_validate(value, strict=True))
    except ValidationError as refusal:
        first = refusal.errors(include_url=False, include_context=False)[0]
        path = dotted(("result", *first["loc"]))
        raise ResultRefused(first["msg"], path=path, hint=f"return a {model.__name__}") from None


def _plain(value: Any) -> Any:
    try:
        return to_jsonable_python(value)  # leaves NaN as it is, to be refused; models' own dump makes it null
    except Exception as fault:  # noqa: BLE001  (serializers of users' models may raise anything)
        raise ResultRefused(f"the result is no JSON: {type(fault).__name__}", path="result") from None


def _canonical(value: Any) -> str:
    try:
        return canonical_text(value)
    except NotCanonical as fault:
        path = f"result.{fault.path}" if fault.path else "result"
        raise ResultRefused(fault.message, path=path, hint="return JSON values") from None
