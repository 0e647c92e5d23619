"""What may be asked for: a frozen picture of the registered actions and planners.

The door and the policy take it as an argument, so that they stay pure; `workers.registry` builds it.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from orchestrator.admission.defaults import plain_defaults
from orchestrator.admission.params import ParamsReader
from schemas.policy import LIMIT_FIELDS, Policy, SomeLimits
from schemas.states import EffectClass

Exclusive = Callable[[Any], str | None]
Confined = Callable[[Policy, Any], bool]


@dataclass(frozen=True)
class ActionSpec:
    """One registered action, without its code.

    effect: what a redelivery may do again. Limits left None are the policy's: attempts counts tries, the others
    are seconds. queue: None for the steps queue. exclusive: names what a step with these params writes; no two
    steps of a plan, whatever their actions, may name the same unless one waits for the other. origin: where it was
    declared. has_compensation: something undoes what it did. has_probe: the other side can be asked whether it did it.
    confined: whether all that a step does stays in its run's workspace, and goes with that; or what says so of a policy
    and a result.
    """

    name: str
    effect: EffectClass
    params_model: type[BaseModel]
    result_model: type[BaseModel] | None = None
    attempts: int | None = None
    timeout_s: float | None = None
    lease_s: float | None = None
    backoff_s: float | None = None
    backoff_max_s: float | None = None
    queue: str | None = None
    exclusive: Exclusive | None = None
    summary: str = ""
    origin: str = ""
    has_compensation: bool = False
    has_probe: bool = False
    confined: bool | Confined = False

    @cached_property
    def reader(self) -> ParamsReader:
        """Reads this action's params."""
        return ParamsReader(self.params_model)

    @cached_property
    def defaults(self) -> Mapping[str, Any] | None:
        """What is written into params that leave a key out; None where that depends on more than the key."""
        return plain_defaults(self.params_model)

    @property
    def limits(self) -> SomeLimits:
        """What the action says of its own limits, for `Policy.limits_for`."""
        return SomeLimits(**{name: getattr(self, name) for name in LIMIT_FIELDS})

    def is_confined(self, policy: Policy, done: Any = None) -> bool:
        """Whether the end of the run's workspace undoes a step. done: its result, None where there is none, or yet."""
        if isinstance(self.confined, bool):
            return self.confined
        try:
            return self.confined(policy, done) is True  # not what is merely true, such as a coroutine
        except Exception:  # noqa: BLE001  (users' code may raise anything; what nobody vouches for is not so)
            return False

    def is_undone(self, policy: Policy) -> bool:
        """Whether of every step, however it ends, nothing stays when its run is undone."""
        return self.effect is EffectClass.PURE or self.has_compensation or self.is_confined(policy)

    @property
    def referable(self) -> frozenset[str]:
        """Keys of the params where a plan may name an earlier step's result."""
        return self.reader.referable


@dataclass(frozen=True)
class Catalogue:
    """Every action a plan may name and every planner a submission may name."""

    actions: Mapping[str, ActionSpec] = field(default_factory=dict)
    planners: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "actions", MappingProxyType(dict(self.actions)))

    def planner_fault(self, name: str) -> str | None:
        """Why a submission cannot name this planner."""
        if name in self.planners:
            return None
        close = difflib.get_close_matches(name, sorted(self.planners), n=1)
        guess = f"did you mean {close[0]}?" if close else "`mandor actions list` shows which there are"
        return f"no planner is called {name!r}; {guess}"

    def json_schema(self, allowed: frozenset[str] | None = None) -> dict[str, Any]:
        """JSON schema of the plans that this catalogue allows: what a model is shown. allowed: only these actions."""
        from orchestrator.admission.schema import plan_schema

        names = sorted(name for name in self.actions if allowed is None or name in allowed)
        return plan_schema([self.actions[name] for name in names])


def beyond_quota(specs: Sequence[ActionSpec], policy: Policy) -> Iterator[tuple[int, str]]:
    """For each action that a plan names too often: where that begins, and why it is refused."""
    for action, quota in policy.quotas.items():
        places = [index for index, spec in enumerate(specs) if spec.name == action]
        if quota.steps is not None and len(places) > quota.steps:
            yield places[quota.steps], f"the policy allows {quota.steps} steps of {action}, the plan has {len(places)}"


def policy_refusal(spec: ActionSpec, policy: Policy) -> str | None:
    """Why the policy does not allow an action: itself, its effect class, or that nothing undoes it; None if it does."""
    if policy.actions is not None and spec.name not in policy.actions:
        return f"the policy does not allow the action {spec.name}"
    if policy.effects is not None and spec.effect not in policy.effects:
        return f"{spec.name} has effects of class {spec.effect}, which the policy does not allow"
    if policy.require_compensation and not spec.is_undone(policy):
        return f"nothing undoes what {spec.name} does, and the policy requires a compensation"
    return None
