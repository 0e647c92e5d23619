"""Celery tasks as actions: what becomes of a signature, and what a task's code meets where it calls on Celery."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import celery
import pytest
from celery import Celery, Task
from celery.exceptions import Ignore
from pydantic import BaseModel, Field

from orchestrator.admission import Referable, validate_handoff
from schemas.policy import LONGEST_S, Policy
from tests.support.plans import PLAN_ID
from workers.celery_tasks import NotInAStep, RetriesOver
from workers.context import NoEffect, PermanentError, WorkerStopping
from workers.failures import delay_ms
from workers.outcomes import TaskRetry
from workers.registry import Action, BadDeclaration, Registry
from workers.testing import context

app = Celery("others", broker="memory://", set_as_current=False)


class Line(BaseModel):
    sku: str
    count: int = 1


class Invoice(BaseModel):
    number: str


class InAnApp(Task):
    """As web frameworks make theirs: everything is run inside of something."""

    entered = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        InAnApp.entered += 1
        return super().__call__(*args, **kwargs)


class OfAClass(Task):
    name = "others.of_a_class"

    def __init__(self) -> None:
        self.rate = 3

    def run(self, cents: int) -> int:
        """Of the old kind."""
        return cents * self.rate


@app.task
def invoice(
    order: int, lines: list[Line], email: Annotated[str, Field(min_length=3)] = "a@b.example", *, dry: bool = False
) -> Invoice:
    """Write an invoice.

    For one order.
    """
    return Invoice(number=f"{order}/{lines[0].sku}x{lines[0].count}/{email}/{dry}")


@app.task(pydantic=True)
def modelled(line: Line, note: str | None = None) -> Invoice:
    return Invoice(number=line.sku)


@app.task(bind=True, max_retries=2, default_retry_delay=7)
def moody(self: Any, mood: str, paid: Annotated[str, Referable] = "") -> Any:
    return MOODS[mood](self)


@app.task(bind=True, autoretry_for=(OSError,), retry_kwargs={"max_retries": 4, "countdown": 9})
def restless(self: Any, mood: str) -> Any:
    return MOODS[mood](self)


@app.task(base=InAnApp)
def inside(x: int) -> int:
    return x


def stop(error: Exception) -> Any:
    raise error


def caught(self: Any) -> Any:
    try:
        raise WorkerStopping("the worker shuts down")
    except Exception:  # noqa: BLE001  (as tasks do)
        self.retry()


MOODS: dict[str, Callable[[Any], Any]] = {
    "request": lambda self: vars(self.request),
    "current": lambda self: celery.current_task.request.id,
    "again": lambda self: self.retry(),
    "soon": lambda self: self.retry(countdown=2, exc=OSError("the bank is closed")),
    "at": lambda self: self.retry(eta=datetime.now(UTC) + timedelta(seconds=100)),
    "at, without a zone": lambda self: self.retry(eta=datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=100)),
    "never": lambda self: self.retry(countdown=1e300),
    "no number": lambda self: self.retry(countdown=float("nan")),
    "returned": lambda self: self.retry(throw=False),
    "same": lambda self: self.retry(args=["same"], kwargs={"paid": ""}),
    "others": lambda self: self.retry(kwargs={"mood": "again"}),
    "other places": lambda self: self.retry(args=["again"]),
    "replaced": lambda self: self.replace(invoice.s(1, [])),
    "more": lambda self: self.add_to_chord(invoice.s(1, [])),
    "ignored": lambda self: stop(Ignore()),
    "error": lambda self: stop(OSError("the bank is closed")),
    "state": lambda self: self.update_state(state="PROGRESS", meta={"done": 1}),
    "for good": lambda self: self.retry(exc=PermanentError("no such account")),
    "nothing done": lambda self: self.retry(exc=NoEffect("it was not sent")),
    "unsaid": caught,
    "stopped": lambda self: stop(WorkerStopping("the worker shuts down")),
}


def offered(task: Any, **limits: Any) -> Action[Any, Any]:
    return Registry().action("others.act", effect="idempotent", **limits)(task)


def call(task: Any, attempt: int = 1, **params: Any) -> Any:
    action = offered(task)
    return action(action.spec.params_model(**params), context(attempt=attempt))


# ---- what a plan may say


def test_a_signature_is_the_params_model() -> None:
    registry = Registry()
    registry.action("others.invoice", effect="keyed")(invoice)
    registry.action("others.plain", effect="pure")(inside)
    lines = [{"sku": "tea"}]
    steps = [{"action": "others.invoice", "params": {"order": 7, "lines": lines}}]
    raw = json.dumps({"plan_id": PLAN_ID, "context_hash": "0" * 64, "steps": steps})
    plan = validate_handoff(raw, catalogue=registry.catalogue(), policy=Policy(), context_hash=None)
    written = {"order": 7, "lines": [{"sku": "tea", "count": 1}], "email": "a@b.example", "dry": False}
    assert plan.steps[0].params == written
    spec = registry.find_action("others.invoice").spec
    assert (spec.summary, spec.result_model) == ("Write an invoice.", Invoice)
    assert __file__ in spec.origin
    schema = spec.params_model.model_json_schema()
    assert (schema["title"], schema["required"]) == ("invoice", ["order", "lines"])


def test_params_are_read_as_strictly_as_any() -> None:
    reader = offered(invoice).spec.reader
    given = {"order": "7", "lines": [{"sku": "tea", "size": 3}], "email": "", "more": 1}
    issues = {issue.path: issue.kind for issue in reader.read(given, ("params",)).issues}
    assert issues == {
        "params.order": "type",
        "params.lines.0.size": "extra",
        "params.email": "value",
        "params.more": "extra",
    }


def test_the_code_gets_what_its_annotations_say() -> None:
    assert call(invoice, order=7, lines=[Line(sku="tea")], dry=True) == Invoice(number="7/teax1/a@b.example/True")
    assert call(modelled, line=Line(sku="tea")) == {"number": "tea"}, "Celery's own wrapper writes models out"
    assert call(app.register_task(OfAClass()), cents=5) == 15
    assert invoice(1, [Line(sku="x")]).number == "1/xx1/a@b.example/False", "the task itself is as it was"


def test_what_a_task_says_of_its_limits_holds_until_the_declaration_says_more() -> None:
    assert offered(moody).spec.attempts == 3
    assert offered(restless).spec.attempts == 5
    assert offered(moody, attempts=8).spec.attempts == 8
    assert offered(app.task(nothing, name="forever", max_retries=None)).spec.attempts is None
    limited = app.task(nothing, name="limited", time_limit=30, soft_time_limit=20)
    assert offered(limited).spec.timeout_s == 20
    assert offered(limited, timeout_s=5).spec.timeout_s == 5


def nothing() -> None: ...
def unannotated(order, email: str) -> None: ...  # type: ignore[no-untyped-def]
def starred(order: int, *rest: int) -> None: ...
def keyed(order: int, **rest: int) -> None: ...
def positional(order: int, /) -> None: ...
def connected(order: int, connection: Task) -> None: ...
def called(order: int, then: Callable[[], int]) -> None: ...
def unknown(order: int, email: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def hidden(order: int, _email: str) -> None: ...
def shadowed(order: int, schema: str) -> None: ...
def changed(order: int, email: str = 5) -> None: ...  # type: ignore[assignment]
async def asynchronous(order: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "words", "mend"),
    [
        (unannotated, "the parameter 'order' has no annotation", "order: str"),
        (starred, r"the parameter '\*rest: int'", "plain parameters"),
        (keyed, r"the parameter '\*\*rest: int'", "plain parameters"),
        (positional, "the parameter 'order: int'", "plain parameters"),
        (connected, "the parameter 'connection' has a type that JSON cannot carry", "annotate it"),
        (called, "the parameter 'then' has a type that JSON cannot carry", "annotate it"),
        (unknown, "the parameter 'email' has a type that JSON cannot carry: name 'Nowhere'", "annotate it"),
        (hidden, "the parameter '_email' has a name", "another name"),
        (shadowed, "the parameter 'schema' has a name", "another name"),
        (changed, "changed.email has a default that JSON does not give back", "a default of its own type"),
        (asynchronous, "is async", "plain function"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_parameter_that_json_cannot_fill_in_is_refused(function: Any, words: str, mend: str) -> None:
    with pytest.raises(BadDeclaration, match=words) as refused:
        offered(app.task(function, name=f"refused.{function.__name__}"))
    assert mend in str(refused.value.hint)
    assert f"{__file__}:{function.__code__.co_firstlineno}" in refused.value.message


def test_an_effect_class_must_be_said_and_a_signature_is_no_task() -> None:
    with pytest.raises(TypeError, match="effect"):
        Registry().action("others.act")(invoice)  # type: ignore[call-arg]
    with pytest.raises(BadDeclaration, match="not a Celery task"):
        offered(invoice.s(1, []))


def test_a_compensation_and_a_probe_take_params_without_a_name() -> None:
    action = Registry().action("others.act", effect="keyed")(invoice)

    @action.compensation
    def withdraw(params: Any, done: Invoice | None, ctx: Any) -> None: ...

    @action.probe
    def find(params: Any, ctx: Any) -> Invoice | None: ...

    assert (action.undo, action.ask) == (withdraw, find)
    with pytest.raises(BadDeclaration, match="other params"):
        Registry().action("others.act", effect="keyed")(invoice).compensation(named)


def named(params: Line, done: Invoice | None, ctx: Any) -> None: ...


# ---- what it meets


def test_the_request_says_which_attempt_this_is() -> None:
    ctx = context(step_id="pay", attempt=2, fencing_token=9)
    request = call_in(ctx, "request")
    assert request["id"] == f"{ctx.run_id}.step.pay"
    assert (request["retries"], request["kwargs"]) == (1, {"mood": "request", "paid": ""})
    assert request["headers"] == {
        "run_id": ctx.run_id,
        "session_id": None,
        "step_id": "pay",
        "attempt": 2,
        "fencing_token": 9,
        "idempotency_key": ctx.idempotency_key,
    }
    assert call_in(ctx, "current") == f"{ctx.run_id}.step.pay"
    assert celery.current_task is None or not celery.current_task
    assert moody.request.id is None, "nothing of the attempt is left behind"


def call_in(ctx: Any, mood: str) -> Any:
    action = offered(moody)
    return action(action.spec.params_model(mood=mood), ctx)


@pytest.mark.parametrize(
    ("mood", "least_s", "most_s"),
    [
        ("again", 7, 7),
        ("soon", 2, 2),
        ("at", 90, 100),
        ("at, without a zone", 90, 100),
        ("never", LONGEST_S, LONGEST_S),
        ("no number", 0, 0),
        ("returned", 7, 7),
        ("same", 7, 7),
    ],
)
def test_a_retry_ends_the_attempt_and_says_when_the_next_may_come(mood: str, least_s: float, most_s: float) -> None:
    with pytest.raises(TaskRetry) as again:
        call(moody, mood=mood)
    assert least_s * 1000 <= delay_ms(again.value) <= most_s * 1000


def test_an_automatic_retry_is_one_too() -> None:
    with pytest.raises(TaskRetry, match="OSError: the bank is closed") as again:
        call(restless, attempt=4, mood="error")
    assert delay_ms(again.value) == 9000
    with pytest.raises(RetriesOver, match="OSError: the bank is closed"):
        call(restless, attempt=5, mood="error")


def test_a_task_that_has_had_enough_fails_for_good() -> None:
    with pytest.raises(TaskRetry, match="OSError: the bank is closed"):
        call(moody, attempt=2, mood="soon")
    with pytest.raises(RetriesOver, match="OSError: the bank is closed"):
        call(moody, attempt=3, mood="soon")
    with pytest.raises(RetriesOver, match="tried again 2 times"):
        call(moody, attempt=3, mood="again")
    with pytest.raises(OSError, match="the bank is closed"):
        call(moody, attempt=3, mood="error")


@pytest.mark.parametrize(
    ("mood", "words", "mend"),
    [
        ("replaced", r"by [\w.]+\.invoice: a step cannot be replaced", "name both as steps"),
        ("more", "the steps of its plan", "name it as a step"),
        ("others", "other arguments", "another plan"),
        ("other places", "other arguments", "another plan"),
        ("ignored", "ended with Ignore", "return a result"),
    ],
)
def test_what_only_celery_could_do_is_refused_for_good(mood: str, words: str, mend: str) -> None:
    with pytest.raises(NotInAStep, match=words) as refused:
        call(moody, mood=mood)
    assert mend in str(refused.value.hint)


@pytest.mark.parametrize(
    ("task", "mood", "error"),
    [
        (moody, "for good", PermanentError),
        (moody, "nothing done", NoEffect),
        (restless, "stopped", WorkerStopping),
        (moody, "unsaid", WorkerStopping),
    ],
)
def test_our_own_words_are_heard_through_a_retry(task: Any, mood: str, error: type[Exception]) -> None:
    with pytest.raises(error) as said:
        call(task, mood=mood)
    assert type(said.value) is error


def test_a_progress_report_goes_nowhere() -> None:
    assert call(moody, mood="state") is None


def test_a_task_that_is_called_inside_of_something_still_is() -> None:
    before = InAnApp.entered
    assert call(inside, x=4) == 4
    assert InAnApp.entered == before + 1
