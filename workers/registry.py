"""What user code declares: actions and planners, checked when their module is imported.

    @action("payments.charge", effect="keyed", attempts=5, timeout_s=20)
    def charge(params: Charge, ctx: Context) -> Charged: ...

    @charge.compensation
    def refund(params: Charge, done: Charged | None, ctx: Context) -> None: ...

    @charge.probe
    def find(params: Charge, ctx: Context) -> Charged | None: ...

    @charge.simulate
    def foresee(params: Charge) -> str: ...

    send_invoice = action("shop.invoice", effect="keyed")(tasks.invoice)  # a Celery task

    @planner("orders.fulfil")
    def fulfil(order: Order, ctx: PlanContext) -> ExecutionPlan: ...

A declaration that could not work is refused there and then with BadDeclaration, which says how to mend it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from pydantic import BaseModel

from orchestrator.admission.catalogue import ActionSpec, Catalogue, Confined, Exclusive
from orchestrator.errors import NotFound
from workers.binding import StepInputInvalid, bind
from workers.declarations import (
    BadDeclaration,
    check_compensation,
    check_probe,
    check_simulate,
    checked_confined,
    checked_effect,
    checked_function,
    checked_limits,
    checked_name,
    checked_queue,
    guess,
    origin_of,
    params_model_of,
    planner_input_of,
    refuse,
    result_model_of,
    summary_of,
)
from workers.loading import load_actions

if TYPE_CHECKING:
    from schemas.plan import ExecutionPlan
    from workers.context import Context
    from workers.planners.base import Answer

__all__ = [
    "NAMED_BY",
    "Action",
    "BadDeclaration",
    "Planner",
    "Registry",
    "StepInputInvalid",
    "action",
    "bind",
    "catalogue",
    "load_actions",
    "planner",
    "registry",
]

NAMED_BY: Final = "MANDOR_ACTIONS names the modules that declare actions and planners"
Params = TypeVar("Params", bound=BaseModel)
Result = TypeVar("Result")
Undoing = TypeVar("Undoing", bound=Callable[..., Any])
Probing = TypeVar("Probing", bound=Callable[..., Any])
Foreseeing = TypeVar("Foreseeing", bound=Callable[..., str])
PlannerFunction = TypeVar("PlannerFunction", bound=Callable[..., "ExecutionPlan | str | Answer"])


@dataclass(eq=False)
class Action(Generic[Params, Result]):
    """A declared action. Calling it calls the function.

    undo: what its compensation is, called with params, result and context. ask: its probe. foresee: what says, of
    params, what would be done. None: not declared.
    """

    spec: ActionSpec
    function: Callable[[Params, "Context"], Result]
    undo: Callable[[Params, Any, "Context"], Any] | None = None
    ask: Callable[[Params, "Context"], Any] | None = None
    foresee: Callable[[Params], str] | None = None

    @property
    def name(self) -> str:
        """What a plan calls it."""
        return self.spec.name

    def __call__(self, params: Params, ctx: "Context") -> Result:
        return self.function(params, ctx)

    def compensation(self, function: Undoing) -> Undoing:
        """Declare what undoes the action: `(params, done, ctx)`.

        done: the step's result, None where nobody knows whether it happened. It is called behind a guard of its own,
        with an idempotency key of its own, in the effect class of its action.
        """
        try:
            where = checked_function(function, f"the compensation of {self.name!r}")
            check_compensation(function, self.spec, where)
            self.undo = _only(self.undo, function, where)
            self.spec = replace(self.spec, has_compensation=True)
        except BadDeclaration as bad:
            refuse(bad)
        return function

    def probe(self, function: Probing) -> Probing:
        """Declare how to find out whether the effect of a `keyed` or `once` step has happened: `(params, ctx)`.

        It returns the step's result if it has; None if it has not, and can no more; whatever it raises means that
        it cannot tell.
        """
        try:
            where = checked_function(function, f"the probe of {self.name!r}")
            check_probe(function, self.spec, where)
            self.ask = _only(self.ask, function, where)
            self.spec = replace(self.spec, has_probe=True)
        except BadDeclaration as bad:
            refuse(bad)
        return function

    def simulate(self, function: Foreseeing) -> Foreseeing:
        """Declare what says in a sentence what the action would do: `(params)`.

        It is asked by `mandor plan dry-run`, on the machine of whoever wants to know. It may look, and changes nothing.
        """
        try:
            where = checked_function(function, f"the simulate of {self.name!r}")
            check_simulate(function, self.spec, where)
            self.foresee = _only(self.foresee, function, where)
        except BadDeclaration as bad:
            refuse(bad)
        return function


@dataclass(frozen=True)
class Planner:
    """A declared planner. input_model: what the submission's context must be; None where it takes any.

    repairs: it is called again, with `ctx.repair`, when its answer is refused.
    """

    name: str
    function: Callable[..., "ExecutionPlan | str | Answer"]
    input_model: type[BaseModel] | None
    summary: str
    origin: str
    repairs: bool = False

    def __call__(self, *arguments: Any) -> "ExecutionPlan | str | Answer":
        return self.function(*arguments)


class PassedOver:
    """What is left of a bad action while faults are collected: enough for the rest of its module to be imported."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def compensation(self, function: Undoing) -> Undoing:
        """There is nothing to hold it against."""
        return function

    probe = simulate = compensation


class Registry:
    """The actions and planners of one process. There is one, `registry`; tests make their own."""

    def __init__(self) -> None:
        self._actions: dict[str, Action[Any, Any]] = {}
        self._planners: dict[str, Planner] = {}

    def action(
        self,
        name: str,
        *,
        effect: str,
        attempts: int | None = None,
        timeout_s: float | None = None,
        lease_s: float | None = None,
        backoff_s: float | None = None,
        backoff_max_s: float | None = None,
        queue: str | None = None,
        exclusive: Exclusive | None = None,
        confined: bool | Confined = False,
    ) -> Callable[[Callable[[Params, "Context"], Result]], Action[Params, Result]]:
        """Declare a function, or a Celery task, as an action. Limits left out are the task's, or else the policy's.

        effect: pure, idempotent, transactional, keyed or once: what a redelivery may do again. attempts: tries in
        all; *_s: seconds; queue: short name of another queue than `steps`; exclusive: from the params, the name of
        what the step writes, so that two unordered steps never write the same; confined: all that it does stays in the
        run's workspace and is undone by the end of that, or a function that says so, of the policy and of the result
        (None where that is not known).
        """
        limits = {
            "attempts": attempts,
            "timeout_s": timeout_s,
            "lease_s": lease_s,
            "backoff_s": backoff_s,
            "backoff_max_s": backoff_max_s,
        }

        def declare(function: Callable[[Params, "Context"], Result]) -> Action[Params, Result]:
            try:
                code = _code_of(function, f"the action {name!r}")
                spec = _action_spec(code, name, effect, limits, queue, exclusive, confined)
                return self._add_action(Action(spec, code.call))
            except BadDeclaration as bad:
                refuse(bad)
            return cast("Action[Params, Result]", PassedOver(function))

        return declare

    def planner(self, name: str, *, repairs: bool = False) -> Callable[[PlannerFunction], PlannerFunction]:
        """Declare a function as a planner: `(ctx)`, or `(order, ctx)` with a pydantic model for the context.

        repairs: a refused answer is given back to it as `ctx.repair`, twice at most. Code that would write the same
        again has no use for it; one that asks a model has.
        """

        def declare(function: PlannerFunction) -> PlannerFunction:
            try:
                _put(self._planners, _planner_of(function, name, repairs), "planner")
            except BadDeclaration as bad:
                refuse(bad)
            return function

        return declare

    def _add_action(self, declared: Action[Params, Result]) -> Action[Params, Result]:
        _put(self._actions, declared, "action")
        return declared

    def catalogue(self) -> Catalogue:
        """A frozen picture of what is registered now."""
        return Catalogue({name: one.spec for name, one in self._actions.items()}, frozenset(self._planners))

    def actions(self) -> list[Action[Any, Any]]:
        """The registered actions, by name."""
        return [self._actions[name] for name in sorted(self._actions)]

    def planners(self) -> list[Planner]:
        """The registered planners, by name."""
        return [self._planners[name] for name in sorted(self._planners)]

    def find_action(self, name: str) -> Action[Any, Any]:
        """The action of that name, or NotFound."""
        return _find(self._actions, name, "action")

    def find_planner(self, name: str) -> Planner:
        """The planner of that name, or NotFound."""
        return _find(self._planners, name, "planner")


@dataclass(frozen=True)
class _Code:
    """What an action runs. call: `(params, ctx)`; source: the function that was written; where: it is, for messages;
    read_params: makes the params model, or refuses it.
    """

    call: Callable[[Any, "Context"], Any]
    source: Callable[..., Any]
    where: str
    read_params: Callable[[], type[BaseModel]]
    limits: Mapping[str, Any] = field(default_factory=dict)


def _code_of(function: Callable[..., Any], what: str) -> _Code:
    if hasattr(function, "apply_async"):  # Celery is imported for its tasks only
        from workers.celery_tasks import TaskCall

        task = TaskCall(function, what)
        return _Code(task, task.source, task.where, task.params_model, task.limits)
    where = checked_function(function, what)
    return _Code(function, function, where, lambda: params_model_of(function, where))


def _action_spec(
    code: _Code,
    name: str,
    effect: str,
    limits: Mapping[str, Any],
    queue: str | None,
    exclusive: Exclusive | None,
    confined: bool | Confined,
) -> ActionSpec:
    where = code.where
    said = {**code.limits, **{name: value for name, value in limits.items() if value is not None}}
    return ActionSpec(
        name=checked_name(name, where),
        effect=checked_effect(effect, where),
        params_model=code.read_params(),
        result_model=result_model_of(code.source, where),
        **checked_limits(said, where),
        queue=checked_queue(queue, where),
        exclusive=exclusive,
        confined=checked_confined(confined, effect, where),
        summary=summary_of(code.source),
        origin=origin_of(code.source),
    )


def _planner_of(function: Callable[..., Any], name: str, repairs: bool) -> Planner:
    where = checked_function(function, f"the planner {name!r}")
    return Planner(
        name=checked_name(name, where),
        function=function,
        input_model=planner_input_of(function, where),
        summary=summary_of(function),
        origin=origin_of(function),
        repairs=repairs,
    )


def _only(earlier: Callable[..., Any] | None, function: Callable[..., Any], where: str) -> Callable[..., Any]:
    """The function, unless another one was declared before."""
    if earlier is not None and origin_of(earlier) != origin_of(function):
        message = f"{where} was declared before: {origin_of(earlier)}"
        raise BadDeclaration(message, hint="an action has one compensation, one probe and one simulate")
    return function


Declared = TypeVar("Declared", Action[Any, Any], Planner)


def _put(table: dict[str, Declared], declared: Declared, what: str) -> None:
    origin = _origin(declared)
    other = table.get(declared.name)
    if other is not None and _origin(other) != origin:
        message = f"two functions are declared as the {what} {declared.name!r}: {_origin(other)} and {origin}"
        raise BadDeclaration(message, hint="give one of them another name")
    table[declared.name] = declared


def _origin(declared: Action[Any, Any] | Planner) -> str:
    return declared.spec.origin if isinstance(declared, Action) else declared.origin


def _find(table: Mapping[str, Declared], name: str, what: str) -> Declared:
    try:
        return table[name]
    except KeyError:
        message = f"no {what} is called {name[:100]!r}{guess(name, table)}"
        raise NotFound(message, path=what, hint=NAMED_BY) from None


registry = Registry()
action = registry.action
planner = registry.planner
catalogue = registry.catalogue
