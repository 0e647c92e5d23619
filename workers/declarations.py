"""Checks of what a decorator is given: each returns the good value or raises BadDeclaration with the mend."""

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, RootModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from orchestrator.admission.catalogue import ActionSpec, Confined
from orchestrator.admission.defaults import as_json, models_within
from orchestrator.admission.params import is_referable
from orchestrator.errors import ConfigError
from schemas.canonical import canonical_text
from schemas.ids import ACTION_NAME
from schemas.issues import issues_of
from schemas.policy import SomeLimits
from schemas.states import EffectClass
from workers.outcomes import Snooze

QUEUE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
RETURN: Final = "return"
CONFINABLE: Final = (EffectClass.IDEMPOTENT, EffectClass.ONCE)


class BadDeclaration(ConfigError):
    """An action or planner that could not work as declared. `path` is the place in the user's code."""

    kind = "bad_declaration"


class TaskParams(BaseModel):
    """Params whose model was made from a signature: it has no name that an annotation could use."""


_collections: list[list[BadDeclaration]] = []


@contextmanager
def collecting() -> Iterator[list[BadDeclaration]]:
    """Inside, a bad declaration is noted and passed over, so that one look finds them all."""
    found: list[BadDeclaration] = []
    _collections.append(found)
    try:
        yield found
    finally:
        _collections.remove(found)


def refuse(bad: BadDeclaration) -> None:
    """Raise it, unless somebody collects."""
    if not _collections:
        raise bad
    _collections[-1].append(bad)


def checked_function(function: Callable[..., Any], what: str) -> str:
    """The declaration's place, for messages: `the action 'a' (orders/actions.py:12)`. Refuses what is no function."""
    where = f"{what} ({origin_of(function)})"
    if not inspect.isfunction(function):
        raise BadDeclaration(f"{where} is not a plain function", hint="decorate a function declared with def")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise BadDeclaration(f"{where} is async or a generator", hint="write a plain function; workers are synchronous")
    return where


def origin_of(function: Callable[..., Any]) -> str:
    """File and line where the function is declared."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{Path(code.co_filename).resolve()}:{code.co_firstlineno}" if code else repr(function)


def summary_of(function: Callable[..., Any]) -> str:
    """The first paragraph of the docstring on one line: what a model is told about it."""
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


def checked_name(name: object, where: str) -> str:
    """The name, if a plan and a submission can carry it."""
    if not isinstance(name, str) or ACTION_NAME.fullmatch(name) is None:
        hint = "lower-case words of letters, digits and _, joined by dots, such as 'payments.charge'"
        raise BadDeclaration(f"{where} has a name that a plan cannot use", hint=hint)
    return name


def checked_effect(effect: str, where: str) -> EffectClass:
    """The effect class of that word."""
    try:
        return EffectClass(effect)
    except ValueError:
        known = ", ".join(EffectClass)
        message = f"{where} has the unknown effect class {effect!r}{guess(str(effect), EffectClass)}"
        raise BadDeclaration(message, hint=f"one of: {known}") from None


def checked_limits(limits: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The limits, if a policy could hold them."""
    try:
        return dict(SomeLimits(**limits))
    except ValidationError as refusal:
        first = issues_of(refusal)[0]
        hint = "attempts is a whole number from 1 to 100; the others are seconds above 0"
        raise BadDeclaration(f"{where}: {first.path}: {first.message}", hint=hint) from None


def checked_queue(queue: str | None, where: str) -> str | None:
    """The short queue name, if a broker takes it."""
    if queue is not None and QUEUE_NAME.fullmatch(queue) is None:
        hint = "a short name in lower case, such as 'gpu'; the prefix is added"
        raise BadDeclaration(f"{where} has a queue name that does not fit", hint=hint)
    return queue


def checked_confined(confined: object, effect: str, where: str) -> bool | Confined:
    """Whether its effect stays in the workspace, if one of that class can."""
    if not isinstance(confined, bool) and not callable(confined):
        hint = "confined=True, or a function of the policy and the result"
        raise BadDeclaration(f"{where} is confined in a way that nobody can tell", hint=hint)
    if confined is not False and effect not in CONFINABLE:
        hint = "a workspace holds files: its effect is idempotent or once; a pure action has none"
        raise BadDeclaration(f"{where} is said to be confined to the workspace, and {effect}", hint=hint)
    return cast("bool | Confined", confined)


def guess(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing."""
    close = difflib.get_close_matches(word[:100], [str(one) for one in known], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


# ---- signatures


def params_model_of(function: Callable[..., Any], where: str) -> type[BaseModel]:
    """The pydantic model of an action's first parameter."""
    parameters = _positional(function, where)
    if len(parameters) != 2:
        hint = "declare it as def name(params: SomeModel, ctx: Context)"
        raise BadDeclaration(f"{where} takes {len(parameters)} parameters; an action takes two", hint=hint)
    model: Any = _hints(function, where).get(parameters[0])
    if not _is_model(model):
        hint = f"annotate {parameters[0]!r} with a pydantic BaseModel of your own"
        raise BadDeclaration(f"{where} has no params model", hint=hint)
    check_model(model, where)
    return cast("type[BaseModel]", model)


def result_model_of(function: Callable[..., Any], where: str) -> type[BaseModel] | None:
    """The pydantic model an action returns, if not a Snooze; None where it returns plain JSON or nothing."""
    result = _hints(function, where).get(RETURN)
    members = [one for one in get_args(result) if one is not Snooze] if _is_union(result) else [result]
    return members[0] if len(members) == 1 and _is_model(members[0]) else None


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in {Union, UnionType}


def check_compensation(function: Callable[..., Any], spec: ActionSpec, where: str) -> None:
    """Refuse a compensation that could not be called with the action's params, its result or None, and a context."""
    if spec.effect is EffectClass.PURE:
        raise BadDeclaration(f"{where}: a pure action changes nothing that could be undone", hint="leave it out")
    params, done, _ = _parameters(function, spec, where, ("params", "done", "ctx"))
    hints = _hints(function, where)
    _check_params(hints.get(params), spec, where)
    if spec.result_model is not None and not _may_be(hints.get(done, Any), spec.result_model):
        hint = f"annotate it as {spec.result_model.__name__} | None; None stands for a step in doubt"
        raise BadDeclaration(f"{where}: {done!r} takes another result than its action has", hint=hint)


def _may_be(annotation: Any, model: type[BaseModel]) -> bool:
    return annotation is Any or (_is_union(annotation) and set(get_args(annotation)) == {model, type(None)})


def check_probe(function: Callable[..., Any], spec: ActionSpec, where: str) -> None:
    """Refuse a probe that could not be asked, or would never say anything."""
    if spec.effect not in (EffectClass.KEYED, EffectClass.ONCE):
        hint = "only the outcome of a keyed or once effect can be unknown and found out"
        raise BadDeclaration(f"{where}: the action's class is {spec.effect}", hint=hint)
    params, _ = _parameters(function, spec, where, ("params", "ctx"))
    hints = _hints(function, where)
    _check_params(hints.get(params), spec, where)
    if hints.get(RETURN, Any) is type(None):
        hint = "return the step's result if it happened, None if it did not, and raise if nobody knows"
        raise BadDeclaration(f"{where} never says that it happened", hint=hint)


def check_simulate(function: Callable[..., Any], spec: ActionSpec, where: str) -> None:
    """Refuse what could not be called with the action's params, or would not answer with a sentence."""
    [params] = _parameters(function, spec, where, ("params",))
    hints = _hints(function, where)
    _check_params(hints.get(params), spec, where)
    if hints.get(RETURN, str) is not str:
        hint = "return a sentence (str): what would be done"
        raise BadDeclaration(f"{where} answers with something else than text", hint=hint)


def _parameters(function: Callable[..., Any], spec: ActionSpec, where: str, names: tuple[str, ...]) -> list[str]:
    found = _positional(function, where)
    if len(found) != len(names):
        hint = f"declare it as def name({', '.join(names)}) with params: {spec.params_model.__name__}"
        raise BadDeclaration(f"{where} takes {len(found)} parameters, not {len(names)}", hint=hint)
    return found


def _check_params(model: Any, spec: ActionSpec, where: str) -> None:
    if issubclass(spec.params_model, TaskParams):
        if model is not Any:
            hint = "annotate the first with Any: the params have one attribute for each parameter of the task"
            raise BadDeclaration(f"{where} takes other params than its action", hint=hint)
    elif model is not spec.params_model:
        name = spec.params_model.__name__
        raise BadDeclaration(f"{where} takes other params than its action", hint=f"annotate the first with {name}")


def planner_input_of(function: Callable[..., Any], where: str) -> type[BaseModel] | None:
    """The model of a planner's first parameter; None where the planner takes its context only."""
    parameters = _positional(function, where)
    if len(parameters) == 1:
        return None
    model = _hints(function, where).get(parameters[0]) if parameters else None
    if len(parameters) != 2 or not _is_model(model, allow_root=True):
        hint = "declare it as def name(ctx: PlanContext) or def name(order: SomeModel, ctx: PlanContext)"
        raise BadDeclaration(f"{where} has parameters that nobody can fill in", hint=hint)
    return model


def _positional(function: Callable[..., Any], where: str) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is not one.POSITIONAL_OR_KEYWORD for one in parameters):
        hint = "use plain parameters, without *, ** and /"
        raise BadDeclaration(f"{where} has parameters that nobody can fill in", hint=hint)
    return [one.name for one in parameters]


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError) as wrong:
        hint = "import the names that annotations use at module level, outside of `if TYPE_CHECKING`"
        raise BadDeclaration(f"{where} has an annotation that cannot be read: {wrong}", hint=hint) from None


def _is_model(candidate: Any, *, allow_root: bool = False) -> bool:
    if not isinstance(candidate, type) or not issubclass(candidate, BaseModel) or candidate is BaseModel:
        return False
    return allow_root or not issubclass(candidate, RootModel)


# ---- models


def check_model(model: type[BaseModel], where: str) -> None:
    """Refuse a params model that cannot be read from JSON, shown as a schema, and written out with its defaults."""
    try:
        model.model_json_schema()
    except PydanticUserError as wrong:
        hint = "use types that JSON can carry, and declare the models it names before it"
        message = f"{where}: the model {model.__name__} has no JSON schema: {wrong.message}"
        raise BadDeclaration(message, hint=hint) from None
    for part in models_within(model):
        for name, info in part.model_fields.items():
            _check_field(f"{where}: {part.__name__}.{name}", info)
            _check_mark(f"{where}: {part.__name__}.{name}", info, at_top=part is model)


def _check_field(field: str, info: FieldInfo) -> None:
    if info.validation_alias is not None and not isinstance(info.validation_alias, str):
        raise BadDeclaration(f"{field} has an alias of several paths", hint="use one plain alias, or none")
    if info.default_factory_takes_validated_data:
        hint = "use a factory without arguments, or compute it in the action"
        raise BadDeclaration(f"{field} has a default that depends on other fields", hint=hint)
    if not info.is_required() and not _default_survives(info):
        hint = "give it a default of its own type that JSON can carry, or none"
        raise BadDeclaration(f"{field} has a default that JSON does not give back", hint=hint)


def _check_mark(field: str, info: FieldInfo, *, at_top: bool) -> None:
    if is_referable(info) and not at_top:
        hint = "mark the params model's own field instead, and refer to the whole of it"
        raise BadDeclaration(f"{field} is Referable, but lies inside another model", hint=hint)


def _default_survives(info: FieldInfo) -> bool:
    """Whether the plan that is stored, with the default written out, is read as the same value by the worker."""
    try:
        default = info.get_default(call_default_factory=True)
        text = canonical_text(as_json(default), exact_integers=True)
        return bool(TypeAdapter(info.rebuild_annotation()).validate_json(text, strict=True) == default)
    except Exception:  # noqa: BLE001  (factories and validators are users' code: any fault means no)
        return False
