"""One action's params: read strictly from JSON text, faults in plan coordinates, defaults filled in.

The model a user declares may be lax; what arrives from a planner is read with strict types and without unknown
keys at every depth, whatever the model's own configuration says.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final

from pydantic import BaseModel, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from orchestrator.admission.defaults import field_key, filled
from orchestrator.admission.fields import NAME_ERROR, Referable
from orchestrator.admission.refusal import MAX_ISSUES, Kind, excerpt
from orchestrator.telemetry.text import is_secret_name
from schemas.issues import Issue, dotted

Path = tuple[str | int, ...]
_KINDS = {"missing": Kind.MISSING, "missing_argument": Kind.MISSING, NAME_ERROR: Kind.NAME}
MOST_ERRORS: Final = 25_000  # beyond, listing them would cost more memory than the answer is worth
_EXTRA = frozenset({"extra_forbidden", "unexpected_keyword_argument"})


@dataclass(frozen=True, slots=True)
class Reading:
    """params: the validated model; None where it was refused or some fields are references."""

    params: BaseModel | None
    issues: tuple[Issue, ...]


class ParamsReader:
    """Reads the params of one action against its model."""

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model
        self.referable = frozenset(
            field_key(name, info) for name, info in model.model_fields.items() if is_referable(info)
        )
        self._optional = frozenset(
            field_key(name, info)
            for name, info in model.model_fields.items()
            if is_referable(info) and not info.is_required()
        )

    @cached_property
    def _open_model(self) -> type[BaseModel]:
        """The model with every referable field required, so that one left out is noticed and its default not judged."""
        fields: dict[str, Any] = {
            name: (info.annotation, _required(info))
            for name, info in self.model.model_fields.items()
            if is_referable(info)
        }
        return create_model(self.model.__name__, __base__=self.model, __module__=self.model.__module__, **fields)

    def read(self, raw: Mapping[str, Any], at: Path, references: Collection[str] = ()) -> Reading:
        """Validate the params found at `at`. Fields in `references` are taken on trust: their values come later."""
        given = {key: value for key, value in raw.items() if key not in references}
        try:
            params = self._validate(given, bool(references))
        except ValidationError as refusal:
            return Reading(None, tuple(islice(issues_at(refusal, given, at, self._may_lack(references)), MAX_ISSUES)))
        except Exception as fault:  # noqa: BLE001  (users' validators may raise anything; the door answers in issues)
            return Reading(None, (_model_fault(self.model, fault, at),))
        return Reading(params, ())

    def _validate(self, given: dict[str, Any], is_open: bool) -> BaseModel:
        model = self._open_model if is_open else self.model
        return model.model_validate_json(json.dumps(given, ensure_ascii=False), strict=True, extra="forbid")

    def _may_lack(self, references: Collection[str]) -> frozenset[str]:
        """Fields whose lack is no fault: the open model asks for every referable one, its defaults aside."""
        return self._optional.union(references) if references else frozenset()

    def complete(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The params with the model's defaults written out; references stay as they are."""
        return filled(self.model, raw)


def is_referable(info: FieldInfo) -> bool:
    """Whether the field carries the Referable mark, as class or as instance."""
    return any(mark is Referable or isinstance(mark, Referable) for mark in info.metadata)


def _required(info: FieldInfo) -> FieldInfo:
    required = copy(info)
    required.default = PydanticUndefined
    required.default_factory = None
    return required


def issues_at(refusal: ValidationError, raw: Any, at: Path = (), may_lack: Collection[str] = ()) -> Iterator[Issue]:
    """Pydantic's refusal of the value found at `at`, without the lack of fields that may be lacking."""
    count = refusal.error_count()
    if count > MOST_ERRORS:
        yield Issue(dotted(at), Kind.VALUE, f"{count} faults, too many to tell one by one")
        return
    for error in refusal.errors(include_url=False, include_context=False):
        if error["type"] == "missing" and len(error["loc"]) == 1 and error["loc"][0] in may_lack:
            continue
        path = dotted((*at, *plain_path(error, raw)))
        yield Issue(path, kind_of(error), message_of(error))


def plain_path(error: ErrorDetails, raw: Any) -> Path:
    """The error's place in the document: without union tags, validator names and the like that pydantic puts in."""
    place: list[str | int] = []
    last = len(error["loc"]) - 1
    for position, part in enumerate(error["loc"]):
        if _leads_on(raw, part):
            raw = raw[part]
            place.append(part)
        elif position == last and error["type"] in {"missing", "missing_argument"}:
            place.append(part)
    return tuple(place)


def _leads_on(value: Any, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value)


def kind_of(error: ErrorDetails) -> Kind:
    """The closed word for one of pydantic's many types."""
    word = error["type"]
    if word in _EXTRA:
        return Kind.EXTRA
    is_type = word.endswith(("_type", "_parsing", "_from_float")) or word in {"none_required", "literal_error"}
    return _KINDS.get(word, Kind.TYPE if is_type else Kind.VALUE)


def message_of(error: ErrorDetails) -> str:
    """Pydantic's sentence, with a short look at the value where it is a plain one and no secret."""
    message = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    value = error["input"]
    if any(isinstance(part, str) and is_secret_name(part) for part in error["loc"]):
        return message if kind_of(error) in {Kind.TYPE, Kind.EXTRA, Kind.MISSING} else "the value is refused"
    if error["type"] in {"missing", "missing_argument"} or isinstance(value, dict | list):
        return message
    return f"{message[:200]}; got {excerpt(value)}" if isinstance(value, str | int | float) else message


def _model_fault(model: type[BaseModel], fault: Exception, at: Path) -> Issue:
    message = f"a validator of {model.__name__} raised {type(fault).__name__}; it may raise ValueError only"
    return Issue(dotted(at), Kind.MODEL, message)
