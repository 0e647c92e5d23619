"""Writing a model's defaults into raw JSON, so that what is stored and hashed says everything that will be run.

The given values stay as they were written: dumping the validated model instead would reshape them (masked
secrets, computed fields, serializers) and what the worker reads would no longer be what was checked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from schemas.canonical import canonical_text, plain_text


def field_key(name: str, info: FieldInfo) -> str:
    """The key by which JSON knows the field."""
    return info.validation_alias if isinstance(info.validation_alias, str) else name


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    key: str
    info: FieldInfo
    inner: "Inner | None"


@cache
def _fields(model: type[BaseModel]) -> tuple[_Field, ...]:
    return tuple(
        _Field(name, field_key(name, info), info, inner_models(info.annotation))
        for name, info in model.model_fields.items()
    )


def filled(model: type[BaseModel], raw: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the raw object with every default of the model, and of the models inside it, written out."""
    complete = dict(raw)
    for field in _fields(model):
        if field.key in raw:
            complete[field.key] = _filled_value(field.inner, raw[field.key])
        elif field.name not in raw and not field.info.is_required():
            complete[field.key] = as_json(field.info.get_default(call_default_factory=True))
    return complete


def plain_defaults(model: type[BaseModel]) -> dict[str, Any] | None:
    """The defaults by key, if they are the same every time, no model lies inside, and their JSON has one spelling."""
    fields = _fields(model)
    if any(field.inner or field.key != field.name or field.info.default_factory for field in fields):
        return None
    try:
        defaults = {field.key: as_json(field.info.default) for field in fields if not field.info.is_required()}
        return defaults if plain_text(defaults) == canonical_text(defaults, exact_integers=True) else None
    except (PydanticSerializationError, ValueError, TypeError):
        return None


def as_json(default: Any) -> Any:
    """A default as JSON holds it."""
    return to_jsonable_python(default, by_alias=True)


def _filled_value(inner: "Inner | None", value: Any) -> Any:
    if inner is None:
        return value
    if inner.listed:
        return [_filled_item(inner.model, item) for item in value] if isinstance(value, list) else value
    return _filled_item(inner.model, value)


def _filled_item(model: type[BaseModel], value: Any) -> Any:
    return filled(model, value) if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class Inner:
    """The one model that a field's value is made of, alone or as a list."""

    model: type[BaseModel]
    listed: bool = False


def inner_models(annotation: Any) -> Inner | None:
    """The model inside a type. None for anything that is not plainly one: its defaults are left unwritten."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return Inner(annotation)
    origin = get_origin(annotation)
    if origin is Annotated:
        return inner_models(get_args(annotation)[0])
    if origin in {Union, UnionType}:
        return _only_member(annotation)
    if origin in {list, tuple, set, frozenset}:
        return _listed(annotation)
    return None


def _only_member(union: Any) -> Inner | None:
    members = [member for member in get_args(union) if member is not NoneType]
    return inner_models(members[0]) if len(members) == 1 else None


def _listed(sequence: Any) -> Inner | None:
    inner = inner_models(get_args(sequence)[0]) if get_args(sequence) else None
    return Inner(inner.model, listed=True) if inner and not inner.listed else None


def models_within(model: type[BaseModel], seen: set[type[BaseModel]] | None = None) -> Iterator[type[BaseModel]]:
    """The model and those inside it whose defaults are written out, each once."""
    seen = set() if seen is None else seen
    if model in seen:
        return
    seen.add(model)
    yield model
    for field in _fields(model):
        if field.inner:
            yield from models_within(field.inner.model, seen)
