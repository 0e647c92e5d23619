"""Names, policy, limits, and the order in which stages refuse."""

from typing import Annotated

import pytest
from pydantic import BaseModel, Field, field_validator

from orchestrator.admission import Catalogue, CommandLine, Referable, WorkspacePath, readmit
from schemas.canonical import canonical_text, parse_json, sha256_hex
from schemas.ids import step_token
from schemas.policy import Policy, Quota, Rung
from schemas.states import EffectClass
from tests.support.plans import HASH, PLAN_ID, admit, built_in, command, faults, file, plan_text, record, refused
from workers import Context
from workers.registry import Registry

NOWHERE = "0" * 64


class Plain(BaseModel):
    pass


class Move(BaseModel):
    source: Annotated[WorkspacePath, Field(max_length=20), Referable]
    how: CommandLine = "mv"


def moving() -> Catalogue:
    registry = Registry()

    @registry.action("move", effect="idempotent")
    def move(params: Move, ctx: Context) -> None:
        """Move."""

    return registry.catalogue()


def move(source: str = "a", how: str = "mv") -> str:
    return plan_text({"action": "move", "params": {"source": source, "how": how}})


UNREADABLE = "\0\n\x7f\x85\u200b\u200d\u202e\u2066\ufeff\u2028\u3164"
DRAWN_AS_NOTHING = "\u034f\u180b\u180f\u2065\ufe00\ufe0f\ufff0\ufff8\U000e0000\U000e0100\U000e01ef\U000e0fff"


@pytest.mark.parametrize("sign", UNREADABLE + DRAWN_AS_NOTHING)
def test_unreadable_signs_in_a_path(sign: str) -> None:
    assert faults(move(source=f"a{sign}b"), moving()) == [("steps.0.params.source", "name")]


@pytest.mark.parametrize("sign", ["\0", "\u202e", "\u2067", "\u200f"])
def test_misleading_signs_in_a_command(sign: str) -> None:
    assert faults(move(how=f"a{sign}b"), moving()) == [("steps.0.params.how", "name")]


@pytest.mark.parametrize("how", ["a\nb", "\u200d", "\t", "caf\u00e9 \u65e5\u672c"])
def test_ordinary_signs_in_a_command(how: str) -> None:
    assert admit(move(how=how), moving()).steps[0].params["how"] == how


def test_names_come_after_the_graph_and_before_the_context() -> None:
    twice = plan_text(file("a\0", id="a"), file("b", id="a"))
    assert faults(twice, context_hash=NOWHERE) == [("steps.1.id", "duplicate_id")]
    assert faults(plan_text(file("a\0")), context_hash=NOWHERE) == [("steps.0.params.path", "name")]


def test_the_context_comes_before_the_policy() -> None:
    strict = Policy(actions=frozenset({"create_file"}))
    assert faults(plan_text(command()), policy=strict, context_hash=NOWHERE) == [("context_hash", "context")]
    assert faults(plan_text(command()), policy=strict, context_hash=HASH) == [("steps.0.action", "policy")]


def test_models_come_before_the_graph() -> None:
    assert faults(plan_text(command(""), command(needs=["x"]))) == [("steps.0.params.command", "value")]


def test_effect_classes_that_the_policy_does_not_allow() -> None:
    mild = Policy(effects=frozenset({EffectClass.PURE, EffectClass.IDEMPOTENT}))
    assert faults(plan_text(file(), command(), record({})), policy=mild) == [
        ("steps.1.action", "policy"),
        ("steps.2.action", "policy"),
    ]


@pytest.mark.parametrize(("limit", "setting"), [(3, "MANDOR_MAX_STEPS"), (10_000, "no setting")])
def test_too_many_steps_names_limit_and_setting(limit: int, setting: str) -> None:
    text = plan_text(*[command()] * (limit + 1))
    (issue,) = refused(text, policy=Policy(max_steps=limit))
    assert (issue.path, issue.kind) == ("steps", "too_many_steps")
    assert str(limit) in issue.message
    assert setting in issue.message
    assert len(admit(plan_text(*[command()] * 3), policy=Policy(max_steps=limit)).steps) == 3


@pytest.mark.parametrize("sign", ["x", "\u00e9", "\U0001f600"])
def test_the_byte_cap_counts_bytes_and_names_its_setting(sign: str) -> None:
    text = canonical_text({"plan_id": PLAN_ID, "context_hash": HASH, "steps": [file(content=sign * 300)]})
    size = len(text.encode())
    assert admit(text, policy=Policy(plan_bytes=size)).steps
    for raw in (text, text.encode()):
        (issue,) = refused(raw, policy=Policy(plan_bytes=size - 1))
        assert issue.kind == "size"
        assert "MANDOR_PLAN_BYTES" in issue.message


def test_the_hash_is_that_of_the_canonical_text() -> None:
    admission = admit("Here:\n" + plan_text(record({"b": 1.50, "a": 10**20}), command(id="z")))
    assert admission.plan_hash == sha256_hex(admission.plan_text)
    value = parse_json(admission.plan_text, max_bytes=10_000, exact_integers=True)
    assert canonical_text(value, exact_integers=True) == admission.plan_text
    for step, stored in zip(admission.steps, value["steps"], strict=True):
        assert canonical_text(stored, exact_integers=True) == step.text
        assert step.token == step_token(PLAN_ID, step.index, step.action, stored["params"])
    assert [step.params for step in admission.plan.steps] == [step.params for step in admission.steps]


def test_a_stored_plan_may_be_longer_than_the_cap_for_answers() -> None:
    text = plan_text(command())
    policy = Policy(plan_bytes=len(text))
    admission = admit(text, policy=policy)
    assert len(admission.plan_text) > len(text)
    again = readmit(admission.plan_text, catalogue=built_in(), policy=policy, context_hash=HASH)
    assert again.plan_hash == admission.plan_hash
    assert not again.extracted


class Trouble:
    on = False


def stamped() -> int:
    if Trouble.on:
        raise RuntimeError("no clock")
    return 1


class Failing(BaseModel):
    name: str = ""
    stamp: int = Field(default_factory=stamped)

    @field_validator("name")
    @classmethod
    def check(cls, name: str) -> str:
        if name == "crash":
            raise ZeroDivisionError
        return name


def failing() -> Catalogue:
    registry = Registry()

    def written(params: Failing) -> str | None:
        return params.name[10] if params.name == "short" else None

    @registry.action("failing", effect="pure", exclusive=written)
    def action(params: Failing, ctx: Context) -> None:
        """Fail."""

    return registry.catalogue()


@pytest.mark.parametrize("name", ["crash", "short"])
def test_users_code_that_fails_at_the_door_is_an_issue(name: str) -> None:
    assert faults(plan_text({"action": "failing", "params": {"name": name}}), failing()) == [
        ("steps.0.params", "model")
    ]


def test_a_default_that_fails_is_an_issue(monkeypatch: pytest.MonkeyPatch) -> None:
    known = failing()
    monkeypatch.setattr(Trouble, "on", True)
    assert faults(plan_text({"action": "failing", "params": {}}), known) == [("steps.0.params", "model")]


def test_effects_that_nothing_can_undo_where_the_policy_requires_a_compensation() -> None:
    """A command outside of a sandbox leaves what nobody undoes; inside, its workspace is all that there is to undo."""
    careful, lax = Policy(require_compensation=True), Policy(require_compensation=True, min_rung=Rung.RLIMITS)
    text = plan_text(file(), record({}), command())
    assert len(admit(text, policy=careful).steps) == 3
    assert faults(text, policy=lax) == [("steps.2.action", "policy")]
    assert refused(text, policy=lax)[0].message.startswith("nothing undoes what run_command does")


def test_what_raises_when_it_is_asked_whether_it_is_confined_is_not() -> None:
    registry = Registry()

    def confined(policy: Policy, done: object) -> bool:
        raise KeyError(policy.min_rung)

    @registry.action("asks", effect="once", confined=confined)
    def asks(params: Plain, ctx: Context) -> None:
        """Do something."""

    text = plan_text({"action": "asks", "params": {}})
    careful = Policy(require_compensation=True)
    assert faults(text, registry.catalogue(), policy=careful) == [("steps.0.action", "policy")]


def test_what_answers_with_something_merely_true_is_not_confined() -> None:
    registry = Registry()

    async def confined(policy: Policy, done: object) -> bool:
        return False

    @registry.action("waits", effect="once", confined=confined)  # type: ignore[arg-type]
    def waits(params: Plain, ctx: Context) -> None:
        """Do something."""

    text = plan_text({"action": "waits", "params": {}})
    with pytest.warns(RuntimeWarning, match="never awaited"):
        assert faults(text, registry.catalogue(), policy=Policy(require_compensation=True)) == [
            ("steps.0.action", "policy")
        ]


def test_more_steps_of_an_action_than_its_quota_allows() -> None:
    scarce = Policy(quotas={"run_command": Quota(steps=2), "create_file": Quota(steps=1), "mutate_record": Quota()})
    assert len(admit(plan_text(command(), file(), command()), policy=scarce).steps) == 3
    text = plan_text(command(), command(), file("a"), command(), command(), file("b"), record({}), record({}))
    assert faults(text, policy=scarce) == [("steps.3.action", "policy"), ("steps.5.action", "policy")]
    issue = refused(text, policy=scarce)[0]
    assert issue.message == "the policy allows 2 steps of run_command, the plan has 4"
