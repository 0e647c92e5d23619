"""Declarations: what is taken, and what is refused with the mend."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, BaseModel, Field, RootModel, SecretStr

from orchestrator.admission import Referable
from orchestrator.errors import ConfigError, NotFound
from orchestrator.settings import Settings
from schemas.policy import SomeLimits
from schemas.states import EffectClass
from workers import Context, ExecutionPlan, PlanContext, Snooze
from workers.registry import Action, BadDeclaration, Registry, load_actions


class Charge(BaseModel):
    card: str
    cents: Annotated[int, Referable]


class Charged(BaseModel):
    charge_id: str


class Loose(RootModel[dict[str, Any]]):
    pass


class Sealed(BaseModel):
    key: SecretStr = SecretStr("x")


class Sloppy(BaseModel):
    size: int = None  # type: ignore[assignment]


class Crossed(BaseModel):
    low: int
    high: int = Field(default_factory=lambda data: data["low"])


class Paths(BaseModel):
    name: str = Field(validation_alias=AliasChoices("a", "b"))


class Part(BaseModel):
    weight: Annotated[int, Referable]


class Whole(BaseModel):
    part: Part


class Handle(BaseModel):
    call: Callable[[], int]


class Chained(BaseModel):
    name: str
    next: "Chained | None" = None
    price: Decimal = Decimal("1.50")


def well(params: Charge, ctx: Context) -> Charged:
    """Charge a card.

    Once.
    """
    return Charged(charge_id=f"{params.card}-{params.cents}")


def test_a_declared_action_is_described_and_still_a_function() -> None:
    registry = Registry()
    charge = registry.action("payments.charge", effect="keyed", attempts=5, timeout_s=20, queue="slow")(well)
    spec = charge.spec
    assert isinstance(charge, Action)
    assert (spec.name, spec.effect, spec.params_model, spec.result_model) == (
        "payments.charge",
        EffectClass.KEYED,
        Charge,
        Charged,
    )
    assert spec.limits == SomeLimits(attempts=5, timeout_s=20)
    assert spec.referable == {"cents"}
    assert spec.summary == "Charge a card."
    assert "test_registry.py:" in spec.origin
    assert charge(Charge(card="c", cents=1), None).charge_id == "c-1"  # type: ignore[arg-type]
    assert registry.find_action("payments.charge") is charge


def may_snooze(params: Charge, ctx: Context) -> Charged | Snooze: ...  # type: ignore[empty-body]
def may_lack(params: Charge, ctx: Context) -> Charged | None: ...


def test_a_result_may_be_put_off() -> None:
    registry = Registry()
    assert registry.action("a", effect="pure")(may_snooze).spec.result_model is Charged
    assert registry.action("b", effect="pure")(may_lack).spec.result_model is None


def test_the_catalogue_is_a_picture_of_the_moment() -> None:
    registry = Registry()
    before = registry.catalogue()
    registry.action("a", effect="pure")(well)
    assert not before.actions
    assert set(registry.catalogue().actions) == {"a"}
    with pytest.raises(TypeError):
        before.actions["a"] = None  # type: ignore[index]


def unannotated(params, ctx):  # type: ignore[no-untyped-def]
    ...


def with_root(params: Loose, ctx: Context) -> None: ...
def with_dict(params: dict[str, Any], ctx: Context) -> None: ...
def one_parameter(params: Charge) -> None: ...
def three_parameters(params: Charge, ctx: Context, more: int) -> None: ...
def keywords(params: Charge, *, ctx: Context) -> None: ...
def unknown_names(params: "Nowhere", ctx: Context) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def sealed(params: Sealed, ctx: Context) -> None: ...
def sloppy(params: Sloppy, ctx: Context) -> None: ...
def crossed(params: Crossed, ctx: Context) -> None: ...
def paths(params: Paths, ctx: Context) -> None: ...
def whole(params: Whole, ctx: Context) -> None: ...
def handle(params: Handle, ctx: Context) -> None: ...
def chained(params: Chained, ctx: Context) -> None: ...
async def asynchronous(params: Charge, ctx: Context) -> None: ...
def generator(params: Charge, ctx: Context) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "words", "mend"),
    [
        (unannotated, "no params model", "annotate 'params'"),
        (with_root, "no params model", "BaseModel"),
        (with_dict, "no params model", "BaseModel"),
        (one_parameter, "takes 1 parameters", "def name(params: SomeModel, ctx: Context)"),
        (three_parameters, "takes 3 parameters", "def name(params: SomeModel, ctx: Context)"),
        (keywords, "nobody can fill in", "plain parameters"),
        (unknown_names, "cannot be read", "module level"),
        (sealed, "Sealed.key has a default that JSON does not give back", "none"),
        (sloppy, "Sloppy.size has a default that JSON does not give back", "of its own type"),
        (crossed, "Crossed.high has a default that depends on other fields", "without arguments"),
        (paths, "Paths.name has an alias of several paths", "one plain alias"),
        (whole, "Part.weight is Referable, but lies inside another model", "the params model's own field"),
        (handle, "has no JSON schema", "types that JSON can carry"),
        (asynchronous, "async", "plain function"),
        (generator, "generator", "plain function"),
        (Charge, "not a plain function", "def"),
    ],
)
def test_functions_that_could_not_work(function: Any, words: str, mend: str) -> None:
    with pytest.raises(BadDeclaration) as caught:
        Registry().action("bad", effect="pure")(function)
    assert words in caught.value.message
    assert mend in (caught.value.hint or "")
    assert "the action 'bad'" in caught.value.message


def test_models_that_name_themselves_and_decimals_are_fine() -> None:
    registry = Registry()
    registry.action("chain", effect="pure")(chained)
    assert list(registry.catalogue().actions) == ["chain"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"effect": "idempotant"}, "did you mean 'idempotent'?"),
        ({"effect": "magic"}, "unknown effect class 'magic'"),
        ({"attempts": 0}, "attempts"),
        ({"attempts": 2.5}, "attempts"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": float("inf")}, "timeout_s"),
        ({"backoff_s": -1}, "backoff_s"),
        ({"lease_s": "15"}, "lease_s"),
        ({"queue": "a b"}, "queue name"),
    ],
)
def test_arguments_that_could_not_work(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(BadDeclaration, match=words.replace("?", r"\?")) as caught:
        Registry().action("bad", **{"effect": "pure", **arguments})(well)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["", "Charge", "charge card", "1a", "a..b", "a.", "a:b", "a" * 80, 5, None])
def test_names_that_could_not_work(name: Any) -> None:
    with pytest.raises(BadDeclaration, match="a name that a plan cannot use"):
        Registry().action(name, effect="pure")(well)


def test_one_name_for_two_functions_names_both_places() -> None:
    registry = Registry()
    registry.action("same", effect="pure")(well)
    registry.action("same", effect="pure")(well)  # its module was imported once more
    with pytest.raises(BadDeclaration) as caught:
        registry.action("same", effect="pure")(chained)
    assert caught.value.message.count("test_registry.py:") == 2


def test_what_nobody_declared_is_not_found() -> None:
    registry = Registry()
    registry.action("payments.charge", effect="pure")(well)
    with pytest.raises(NotFound, match=r"did you mean 'payments.charge'\?"):
        registry.find_action("payment.charge")
    with pytest.raises(NotFound, match="no planner"):
        registry.find_planner("payments.charge")


def plans(order: Charge, ctx: PlanContext) -> ExecutionPlan: ...  # type: ignore[empty-body]
def plans_freely(ctx: PlanContext) -> str: ...  # type: ignore[empty-body]
def plans_nothing() -> str: ...  # type: ignore[empty-body]
def plans_dicts(order: dict[str, Any], ctx: PlanContext) -> str: ...  # type: ignore[empty-body]
def plans_roots(order: Loose, ctx: PlanContext) -> str: ...  # type: ignore[empty-body]


def test_planners_with_and_without_a_model() -> None:
    registry = Registry()
    assert registry.planner("orders.plan")(plans) is plans
    registry.planner("free")(plans_freely)
    registry.planner("roots")(plans_roots)
    assert registry.find_planner("orders.plan").input_model is Charge
    assert registry.find_planner("free").input_model is None
    assert registry.catalogue().planners == {"orders.plan", "free", "roots"}


@pytest.mark.parametrize("function", [plans_nothing, plans_dicts])
def test_planners_that_could_not_work(function: Any) -> None:
    with pytest.raises(BadDeclaration, match="nobody can fill in") as caught:
        Registry().planner("bad")(function)
    assert "PlanContext" in (caught.value.hint or "")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def test_modules_are_imported_once(module: Callable[[str, str], str], tmp_path: Path) -> None:
    counter = tmp_path / "count"
    name = module(
        "counted_actions",
        f"from pathlib import Path\nwith Path({str(counter)!r}).open('a') as file:\n    file.write('x')",
    )
    for _ in range(3):
        load_actions(Settings(actions=f" {name} , {name},"))
    assert counter.read_text() == "x"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("1 / 0", "ZeroDivisionError"),
        ("def", "SyntaxError"),
    ],
)
def test_a_module_that_fails_is_named_with_its_fault(module: Callable[[str, str], str], text: str, words: str) -> None:
    name = module(f"broken_{len(text)}", text)
    for _ in range(2):
        with pytest.raises(ConfigError) as caught:
            load_actions(Settings(actions=name))
        assert caught.value.path == "MANDOR_ACTIONS"
        assert name in caught.value.message
        assert words in caught.value.message


def test_a_bad_declaration_passes_through(module: Callable[[str, str], str]) -> None:
    text = "from workers import action\n@action('x', effect='pure')\ndef x(): ..."
    with pytest.raises(BadDeclaration, match=r"the action 'x' .*declared_badly\.py:2"):
        load_actions(Settings(actions=module("declared_badly", text)))


# ---- what belongs to an action


EFFECTS_ELSEWHERE = tuple((effect, False) for effect in ("pure", "transactional", "keyed"))


def charge_in(registry: Registry, effect: str = "keyed") -> Action[Charge, Charged]:
    return registry.action("payments.charge", effect=effect)(well)


def refund(params: Charge, done: Charged | None, ctx: Context) -> None:
    """Give it back."""


def find(params: Charge, ctx: Context) -> Charged | None:
    return None


def test_an_action_is_told_what_undoes_it_and_what_finds_out() -> None:
    registry = Registry()
    charge = charge_in(registry)
    assert (charge.spec.has_compensation, charge.spec.has_probe) == (False, False)
    assert charge.compensation(refund) is refund
    assert charge.probe(find) is find
    charge.compensation(refund)  # a module that is imported again
    spec = registry.catalogue().actions["payments.charge"]
    assert (spec.has_compensation, spec.has_probe) == (True, True)
    assert registry.find_action("payments.charge") is charge
    assert (charge.undo, charge.ask) == (refund, find)


@pytest.mark.parametrize(("effect", "may"), [("idempotent", True), ("once", True), *EFFECTS_ELSEWHERE])
def test_only_what_writes_files_can_be_confined_to_a_workspace(effect: str, may: bool) -> None:
    registry = Registry()
    if may:
        assert registry.action("a.b", effect=effect, confined=True)(well).spec.confined is True
        return
    with pytest.raises(BadDeclaration, match="confined to the workspace") as caught:
        registry.action("a.b", effect=effect, confined=True)(well)
    assert "idempotent or once" in str(caught.value.hint)


def test_whether_it_is_confined_is_said_plainly_or_by_a_function() -> None:
    with pytest.raises(BadDeclaration, match="nobody can tell"):
        Registry().action("a.b", effect="once", confined="sometimes")(well)  # type: ignore[arg-type]


def test_an_action_has_one_compensation() -> None:
    charge = charge_in(Registry())
    charge.compensation(refund)

    def other(params: Charge, done: Charged | None, ctx: Context) -> None: ...

    with pytest.raises(BadDeclaration, match="was declared before") as caught:
        charge.compensation(other)
    assert "one compensation" in str(caught.value.hint)


def wrong_params(params: Part, done: Charged | None, ctx: Context) -> None: ...
def wrong_result(params: Charge, done: Part | None, ctx: Context) -> None: ...
def never_none(params: Charge, done: Charged, ctx: Context) -> None: ...
def too_few(params: Charge, ctx: Context) -> None: ...
def anything(params: Charge, done: Any, ctx: Context) -> None: ...
def bare(params: Charge, done, ctx):  # type: ignore[no-untyped-def]
    ...


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (wrong_params, "other params than its action"),
        (wrong_result, "takes another result"),
        (never_none, "takes another result"),
        (too_few, "takes 2 parameters, not 3"),
    ],
)
def test_a_compensation_that_could_not_be_called_is_refused(function: Any, fault: str) -> None:
    with pytest.raises(BadDeclaration, match=fault):
        charge_in(Registry()).compensation(function)


@pytest.mark.parametrize("function", [anything, bare])
def test_a_compensation_may_leave_open_what_it_takes_as_result(function: Any) -> None:
    assert charge_in(Registry()).compensation(function)


def test_a_pure_action_has_nothing_to_undo() -> None:
    with pytest.raises(BadDeclaration, match="changes nothing that could be undone"):
        charge_in(Registry(), "pure").compensation(refund)


def says_nothing(params: Charge, ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("effect", "function", "fault"),
    [
        ("keyed", says_nothing, "never says that it happened"),
        ("once", refund, "takes 3 parameters, not 2"),
        ("pure", find, "class is pure"),
        ("idempotent", find, "class is idempotent"),
        ("transactional", find, "class is transactional"),
    ],
)
def test_a_probe_that_cannot_answer_is_refused(effect: str, function: Any, fault: str) -> None:
    with pytest.raises(BadDeclaration, match=fault):
        charge_in(Registry(), effect).probe(function)
