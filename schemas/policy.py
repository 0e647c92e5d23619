"""What a run may do: resolved once, frozen, stored with the run and named by its hash.

A layer (the request, say) may only narrow the one before it. Each field has its direction:

    actions, effects                                     a subset of what was allowed; null allows everything
    approvals                                            a superset: what any layer names needs a person
    max_*, deadline_s, stop_grace_s, wait_s, *_bytes     at most what was allowed
    limits: attempts, timeout_s, lease_s                 at most
    limits: backoff_s, backoff_max_s                     at least, for a shorter wait asks more of the other side
    require_compensation                                 true, once a layer has said so
    on_failure, on_doubt                                 as the first layer that names it says

How the limits of one action come about is told at `Policy.limits_for`.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from schemas.base import ActionName, Strict
from schemas.canonical import canonical_text, sha256_hex
from schemas.plan import MAX_STEPS
from schemas.states import EffectClass

LONGEST_S: Final = 30 * 86_400.0
LIMIT_FIELDS: Final = ("attempts", "backoff_s", "backoff_max_s", "timeout_s", "lease_s")
_SCALARS: Final = (
    "max_steps",
    "max_parallel",
    "deadline_s",
    "stop_grace_s",
    "result_bytes",
    "inputs_bytes",
    "plan_bytes",
    "wait_s",
)
_FLOORS: Final = frozenset({"backoff_s", "backoff_max_s"})


def _as_set(value: Any) -> Any:
    return frozenset(value) if isinstance(value, list | tuple | set) else value


Attempts = Annotated[int, Field(ge=1, le=100)]
Seconds = Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)]
Wait = Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=2**31)]
Steps = Annotated[int, Field(ge=1, le=MAX_STEPS)]
Actions = Annotated[frozenset[ActionName], BeforeValidator(_as_set), PlainSerializer(sorted, return_type=list[str])]
Effects = Annotated[frozenset[EffectClass], BeforeValidator(_as_set), PlainSerializer(sorted, return_type=list[str])]


class OnFailure(StrEnum):
    """What becomes of a run that cannot succeed: what its steps did is undone, or it ends as it is."""

    COMPENSATE = "compensate"
    STOP = "stop"


Failing = Annotated[OnFailure, Field(strict=False)]


class OnDoubt(StrEnum):
    """What becomes of a run with a step that may have had its effect: it ends at once, or a person is asked first."""

    END = "end"
    WAIT = "wait"


Doubting = Annotated[OnDoubt, Field(strict=False)]


class PolicyWidened(ValueError):
    """A layer asked for more than the layer before it allows. layer: who asked, as a word for people."""

    def __init__(self, field: str, base: Any, asked: Any, layer: str) -> None:
        super().__init__(f"{field}: the {layer} asks for {_plain(asked)}, allowed is {_plain(base)}")
        self.field = field
        self.base = base
        self.asked = asked
        self.layer = layer


def _plain(value: Any) -> str:
    if isinstance(value, frozenset):
        return canonical_text(sorted(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


class ActionLimits(Strict):
    """The limits of one action, in seconds where a name says so."""

    attempts: Attempts = 3
    backoff_s: Wait = 1.0
    backoff_max_s: Wait = 60.0
    timeout_s: Seconds = 60.0
    lease_s: Seconds = 15.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.backoff_s > self.backoff_max_s:
            raise ValueError("backoff_s is longer than backoff_max_s")
        return self


class SomeLimits(Strict):
    """Limits of which any may be left out."""

    attempts: Attempts | None = None
    backoff_s: Wait | None = None
    backoff_max_s: Wait | None = None
    timeout_s: Seconds | None = None
    lease_s: Seconds | None = None

    def named(self) -> Iterator[tuple[str, Any]]:
        """The limits that were not left out."""
        return ((name, value) for name in LIMIT_FIELDS if (value := getattr(self, name)) is not None)


NO_LIMITS: Final = SomeLimits()


class Policy(Strict):
    """A run's policy. The defaults are those of an installation that configures nothing.

    limits: for actions that say nothing themselves. per_action: what the installation says of one action.
    ceiling, ceiling_per_action: what later layers narrowed. on_failure: null where no layer has named it, which means
    to compensate. require_compensation: the door refuses effects that nothing can undo. approvals: actions whose steps
    start only when a person agrees. on_doubt: null means to end. wait_s: how long a wait for a person lasts at most;
    then it counts as failure.
    """

    actions: Actions | None = None
    effects: Effects | None = None
    max_steps: Steps = 1000
    max_parallel: Steps = 100
    deadline_s: Seconds = 3600.0
    stop_grace_s: Wait = 10.0
    result_bytes: Count = 256 * 1024
    inputs_bytes: Count = 1024 * 1024
    plan_bytes: Count = 1024 * 1024
    wait_s: Seconds = 86_400.0
    on_failure: Failing | None = None
    require_compensation: bool = False
    approvals: Actions = frozenset()
    on_doubt: Doubting | None = None
    limits: ActionLimits = ActionLimits()
    per_action: dict[ActionName, SomeLimits] = Field(default_factory=dict)
    ceiling: SomeLimits = NO_LIMITS
    ceiling_per_action: dict[ActionName, SomeLimits] = Field(default_factory=dict)

    @property
    def failing(self) -> OnFailure:
        """What becomes of a run that cannot succeed."""
        return self.on_failure or OnFailure.COMPENSATE

    @property
    def doubting(self) -> OnDoubt:
        """What becomes of a run with a step in doubt."""
        return self.on_doubt or OnDoubt.END

    def limits_for(self, action: str, declared: SomeLimits = NO_LIMITS) -> ActionLimits:
        """The action's limits: `limits`, then what the action declares, then `per_action`; the ceilings bind last."""
        values = dict(self.limits)
        values.update(declared.named())
        values.update(self.per_action.get(action, NO_LIMITS).named())
        for ceiling in (self.ceiling, self.ceiling_per_action.get(action, NO_LIMITS)):
            values.update((name, _narrower(name, values[name], bound)) for name, bound in ceiling.named())
        values["backoff_max_s"] = max(values["backoff_s"], values["backoff_max_s"])
        return ActionLimits(**values)


class PolicyRequest(Strict):
    """What a layer asks to be narrowed; a field left out is left as it is."""

    actions: Actions | None = None
    effects: Effects | None = None
    max_steps: Steps | None = None
    max_parallel: Steps | None = None
    deadline_s: Seconds | None = None
    stop_grace_s: Wait | None = None
    result_bytes: Count | None = None
    inputs_bytes: Count | None = None
    plan_bytes: Count | None = None
    wait_s: Seconds | None = None
    on_failure: Failing | None = None
    require_compensation: bool | None = None
    approvals: Actions | None = None
    on_doubt: Doubting | None = None
    limits: SomeLimits = NO_LIMITS
    per_action: dict[ActionName, SomeLimits] = Field(default_factory=dict)


def meet(base: Policy, request: PolicyRequest, layer: str) -> Policy:
    """The policy narrowed by a layer, or PolicyWidened for the first field that asks for more."""
    changes = {
        **_met_sets(base, request, layer),
        **_met_scalars(base, request, layer),
        **_met_failure(base, request, layer),
        **_met_people(base, request, layer),
        "ceiling": _met_limits("limits", base.limits, base.ceiling, request.limits, layer),
        "ceiling_per_action": _met_actions(base, request, layer),
    }
    return base.model_copy(update=changes)


def _met_sets(base: Policy, request: PolicyRequest, layer: str) -> dict[str, Any]:
    asked = {name: getattr(request, name) for name in ("actions", "effects") if getattr(request, name) is not None}
    for name, wanted in asked.items():
        allowed = getattr(base, name)
        if allowed is not None and not wanted <= allowed:
            raise PolicyWidened(name, allowed, wanted, layer)
    return asked


def _met_scalars(base: Policy, request: PolicyRequest, layer: str) -> dict[str, Any]:
    asked = {name: getattr(request, name) for name in _SCALARS if getattr(request, name) is not None}
    for name, wanted in asked.items():
        _not_wider(name, name, getattr(base, name), wanted, layer)
    return asked


def _met_failure(base: Policy, request: PolicyRequest, layer: str) -> dict[str, Any]:
    """What is about failing runs. Neither way of ending one is narrower than the other: the first word stands."""
    if request.on_failure and base.on_failure and request.on_failure is not base.on_failure:
        raise PolicyWidened("on_failure", base.on_failure, request.on_failure, layer)
    if base.require_compensation and request.require_compensation is False:
        raise PolicyWidened("require_compensation", True, False, layer)
    return {
        "on_failure": base.on_failure or request.on_failure,
        "require_compensation": base.require_compensation or bool(request.require_compensation),
    }


def _met_people(base: Policy, request: PolicyRequest, layer: str) -> dict[str, Any]:
    """What is about people: approvals add up; of what becomes of a doubt, the first word stands."""
    if request.on_doubt and base.on_doubt and request.on_doubt is not base.on_doubt:
        raise PolicyWidened("on_doubt", base.on_doubt, request.on_doubt, layer)
    return {
        "approvals": base.approvals | (request.approvals or frozenset()),
        "on_doubt": base.on_doubt or request.on_doubt,
    }


def _met_actions(base: Policy, request: PolicyRequest, layer: str) -> dict[str, SomeLimits]:
    met = dict(base.ceiling_per_action)
    for action, asked in request.per_action.items():
        allowed = base.limits.model_copy(update=dict(base.per_action.get(action, NO_LIMITS).named()))
        met[action] = _met_limits(f"per_action.{action}", allowed, met.get(action, NO_LIMITS), asked, layer)
    return met


def _met_limits(path: str, base: ActionLimits, ceiling: SomeLimits, asked: SomeLimits, layer: str) -> SomeLimits:
    allowed = {**dict(base), **dict(ceiling.named())}
    for name, wanted in asked.named():
        _not_wider(f"{path}.{name}", name, allowed[name], wanted, layer)
    return ceiling.model_copy(update=dict(asked.named()))


def _not_wider(path: str, name: str, allowed: float, wanted: float, layer: str) -> None:
    if _narrower(name, allowed, wanted) != wanted:
        raise PolicyWidened(path, allowed, wanted, layer)


def _narrower(name: str, one: float, other: float) -> float:
    return max(one, other) if name in _FLOORS else min(one, other)


def policy_text(policy: Policy) -> str:
    """The policy as canonical JSON, as it is stored with the run. Read it with Policy.model_validate_json."""
    return canonical_text(policy.model_dump(mode="json"))


def policy_hash(policy: Policy) -> str:
    """SHA-256 of the policy's canonical JSON."""
    return sha256_hex(policy_text(policy))
