"""Params models made from signatures: for code that was not written as an action.

    def invoice(order: int, email: str, copies: int = 1) -> Invoice: ...

takes the params {"order": 7, "email": "a@b.example"}, one key for each parameter, of the type it is annotated with.
"""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, get_type_hints

from pydantic import BaseModel, TypeAdapter, create_model

from workers.declarations import BadDeclaration, TaskParams, check_model

_PLAIN: Final = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


def params_model_from(function: Callable[..., Any], where: str) -> type[TaskParams]:
    """A model with a field for each parameter. BadDeclaration names the parameter that JSON cannot fill in."""
    fields: dict[str, Any] = {
        one.name: (_annotation(function, one, where), ... if one.default is one.empty else one.default)
        for one in (_checked(one, where) for one in inspect.signature(function).parameters.values())
    }
    model = create_model(function.__name__, __base__=TaskParams, __module__=function.__module__, **fields)
    check_model(model, where)
    return model


def arguments(params: BaseModel) -> dict[str, Any]:
    """What to call the function with."""
    return {name: getattr(params, name) for name in type(params).model_fields}


def _checked(parameter: inspect.Parameter, where: str) -> inspect.Parameter:
    name = parameter.name
    if parameter.kind not in _PLAIN:
        hint = "use plain parameters, without *, ** and /; or offer a function of your own that calls it"
        raise BadDeclaration(f"{where}: nobody can fill in the parameter {str(parameter)!r}", hint=hint)
    if name.startswith("_") or hasattr(BaseModel, name):
        hint = "give it another name; or offer a function of your own that calls it"
        raise BadDeclaration(f"{where}: the parameter {name!r} has a name that a params model cannot use", hint=hint)
    if parameter.annotation is parameter.empty:
        hint = f"say what a plan may give: {name}: str, or any type that pydantic reads from JSON"
        raise BadDeclaration(f"{where}: the parameter {name!r} has no annotation", hint=hint)
    return parameter


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter, where: str) -> Any:
    """The type itself, also where it is written as text. It is asked for its schema alone, to be named in a refusal."""
    name = parameter.name
    try:
        alone = SimpleNamespace(__annotations__={name: parameter.annotation})
        annotation = get_type_hints(alone, inspect.unwrap(function).__globals__, include_extras=True)[name]
        TypeAdapter(annotation).json_schema()
    except Exception as fault:  # noqa: BLE001  (types are users' code: any fault means that it is no use here)
        said = str(fault).partition("\n")[0]
        message = f"{where}: the parameter {name!r} has a type that JSON cannot carry: {said}"
        hint = "annotate it with a type that pydantic reads from JSON; what cannot be sent, the code itself must get"
        raise BadDeclaration(message, hint=hint) from None
    return annotation
