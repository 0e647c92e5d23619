"""What a run may do: resolved once, frozen, stored with the run and named by its hash.

A layer (the request, say) may only narrow what the layers before it left; `schemas.narrowing` says of each field what
that means. How the limits of one action come about is told at `Policy.limits_for`.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from schemas.base import ActionName, Strict
from schemas.canonical import canonical_text, sha256_hex
from schemas.narrowing import FIELDS, LIMITS, QUOTAS, narrowed
from schemas.patterns import Pattern
from schemas.plan import MAX_STEPS
from schemas.states import EffectClass

LONGEST_S: Final = 30 * 86_400.0
LIMIT_FIELDS: Final = tuple(LIMITS)


def _as_set(value: Any) -> Any:
    return frozenset(value) if isinstance(value, list | tuple | set) else value


Attempts = Annotated[int, Field(ge=1, le=100)]
Seconds = Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)]
Wait = Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=2**31)]
Size = Annotated[int, Field(ge=0, le=2**31)]
Steps = Annotated[int, Field(ge=1, le=MAX_STEPS)]
Actions = Annotated[frozenset[ActionName], BeforeValidator(_as_set), PlainSerializer(sorted, return_type=list[str])]
Patterns = Annotated[frozenset[Pattern], BeforeValidator(_as_set), PlainSerializer(sorted, return_type=list[str])]
Effects = Annotated[frozenset[EffectClass], BeforeValidator(_as_set), PlainSerializer(sorted, return_type=list[str])]
FileName = Annotated[str, Field(pattern=r"^[^/\x00]{1,255}\z")]
Names = Annotated[frozenset[FileName], BeforeValidator(_as_set), PlainSerializer(sorted, return_type=list[str])]
# what other programs run or obey by themselves where somebody works in a folder
PROTECTED_NAMES: Final = frozenset(
    f".{name}"
    for name in (
        *("bash_login", "bash_profile", "bashrc", "envrc", "profile", "zshenv", "zshrc"),
        *("cursor", "git", "hg", "ssh", "vscode"),
    )
)


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


class Rung(StrEnum):
    """What fences a command in, from the strongest: see docs/sandbox.md. The last is a choice of the operator's."""

    BUBBLEWRAP = "bubblewrap"
    NAMESPACES = "namespaces"
    RLIMITS = "rlimits"

    def is_at_least(self, other: "Rung") -> bool:
        """Whether this one is as strong, or stronger."""
        ladder = tuple(Rung)
        return ladder.index(self) <= ladder.index(other)


AtLeast = Annotated[Rung, Field(strict=False)]


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

    def named(self) -> Iterator[tuple[str, Any]]:
        """Each limit with its name."""
        return ((name, getattr(self, name)) for name in LIMIT_FIELDS)


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


class Quota(Strict):
    """How much of one action a run may have; what is left out is left to the run as a whole.

    steps: of a plan that name the action; result_bytes: of each result.
    """

    steps: Steps | None = None
    result_bytes: Count | None = None

    def named(self) -> Iterator[tuple[str, Any]]:
        """What was not left out."""
        return ((name, value) for name in QUOTAS if (value := getattr(self, name)) is not None)


NO_QUOTA: Final = Quota()


class Policy(Strict):
    """A run's policy. The defaults are those of an installation that configures nothing.

    limits: for actions that say nothing themselves. per_action: what the installation says of one action.
    ceiling, ceiling_per_action: what later layers narrowed. on_failure: null where no layer has named it, which means
    to compensate. require_compensation: the door refuses effects that nothing can undo. approvals: actions whose steps
    start only when a person agrees. on_doubt: null means to end. wait_s: how long a wait for a person lasts at most;
    then it counts as failure. quotas: how much of single actions there may be in a run.
    min_rung: the weakest sandbox that a command may run in. command_*: bounds of a command (time, processes, output),
    and of each of its processes (processor time, memory, a file that it writes).
    workspace_keep_s: how long a run's workspace stays when the run has ended. artifacts: patterns of files in it that
    are kept beyond that, of artifact_bytes together at most each time that the run ends.
    file_bytes, record_*: of what one step leaves. workspace_*: of all that lies in a run's workspace, when a file is
    written and while a command runs. protected_names: names that no part of a written path has, however they are
    spelled.
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
    file_bytes: Count = 1024 * 1024
    workspace_bytes: Count = 256 * 1024 * 1024
    workspace_files: Count = 10_000
    protected_names: Names = PROTECTED_NAMES
    record_bytes: Count = 1024 * 1024
    record_keys: Count = 10_000
    record_depth: Count = 32
    wait_s: Seconds = 86_400.0
    min_rung: AtLeast = Rung.NAMESPACES
    command_time_s: Seconds = 30.0
    command_cpu_s: Count = 30
    command_memory_bytes: Count = 512 * 1024 * 1024
    command_processes: Count = 64
    command_output_bytes: Count = 64 * 1024 * 1024
    command_file_bytes: Count = 256 * 1024 * 1024
    workspace_keep_s: Wait = 86_400.0
    artifacts: Patterns = frozenset()
    artifact_bytes: Size = 64 * 1024 * 1024
    on_failure: Failing | None = None
    require_compensation: bool = False
    approvals: Actions = frozenset()
    on_doubt: Doubting | None = None
    limits: ActionLimits = ActionLimits()
    per_action: dict[ActionName, SomeLimits] = Field(default_factory=dict)
    ceiling: SomeLimits = NO_LIMITS
    ceiling_per_action: dict[ActionName, SomeLimits] = Field(default_factory=dict)
    quotas: dict[ActionName, Quota] = Field(default_factory=dict)

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
        said = (self.limits, declared, self.per_action.get(action, NO_LIMITS))
        return _bound(said, (self.ceiling, self.ceiling_per_action.get(action, NO_LIMITS)))

    @property
    def limits_of_all(self) -> ActionLimits:
        """The limits of actions of which nobody says anything."""
        return _bound((self.limits,), (self.ceiling,))

    def effective(self) -> dict[str, Any]:
        """What holds for a run, and for actions of which nobody says anything, by field."""
        said = {name: getattr(self, name) for name in FIELDS}
        limits = {f"limits.{name}": value for name, value in self.limits_of_all.named()}
        return {**said, "on_failure": self.failing, "on_doubt": self.doubting, **limits}

    def quota_for(self, action: str) -> Quota:
        """How much of an action the run may have, with what bounds the run as a whole."""
        whole, own = {"steps": self.max_steps, "result_bytes": self.result_bytes}, self.quotas.get(action, NO_QUOTA)
        return Quota(**{**whole, **{name: QUOTAS[name](whole[name], value) for name, value in own.named()}})

    def result_bytes_for(self, action: str) -> int:
        """The largest result that a step of this action may have."""
        return min(self.result_bytes, self.quotas.get(action, NO_QUOTA).result_bytes or self.result_bytes)


def _bound(said: Iterable[ActionLimits | SomeLimits], ceilings: Iterable[SomeLimits]) -> ActionLimits:
    """Of each limit the last that was said, within every ceiling. A longer first wait lengthens the longest."""
    values: dict[str, Any] = {name: value for limits in said for name, value in limits.named()}
    for ceiling in ceilings:
        values.update((name, LIMITS[name](values[name], bound)) for name, bound in ceiling.named())
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
    file_bytes: Count | None = None
    workspace_bytes: Count | None = None
    workspace_files: Count | None = None
    protected_names: Names | None = None
    record_bytes: Count | None = None
    record_keys: Count | None = None
    record_depth: Count | None = None
    wait_s: Seconds | None = None
    min_rung: AtLeast | None = None
    command_time_s: Seconds | None = None
    command_cpu_s: Count | None = None
    command_memory_bytes: Count | None = None
    command_processes: Count | None = None
    command_output_bytes: Count | None = None
    command_file_bytes: Count | None = None
    workspace_keep_s: Wait | None = None
    artifacts: Patterns | None = None
    artifact_bytes: Size | None = None
    on_failure: Failing | None = None
    require_compensation: bool | None = None
    approvals: Actions | None = None
    on_doubt: Doubting | None = None
    limits: SomeLimits = NO_LIMITS
    per_action: dict[ActionName, SomeLimits] = Field(default_factory=dict)
    quotas: dict[ActionName, Quota] = Field(default_factory=dict)


def meet(base: Policy, request: PolicyRequest, layer: str) -> Policy:
    """The policy narrowed by a layer, or PolicyWidened for the first field that asks for more.

    What a layer says of one action is held against what it says of all, too.
    """
    asked = {name: value for name in FIELDS if (value := getattr(request, name)) is not None}
    met = {name: narrowed(FIELDS[name], name, getattr(base, name), value, layer) for name, value in asked.items()}
    general = _met_limits("limits", base.limits_of_all, base.ceiling, request.limits, layer)
    base = base.model_copy(update={**met, "ceiling": general})
    return base.model_copy(
        update={
            "ceiling_per_action": _met_actions(base, request, layer),
            "quotas": _met_quotas(base, request, layer),
        }
    )


def _met_actions(base: Policy, request: PolicyRequest, layer: str) -> dict[str, SomeLimits]:
    met = dict(base.ceiling_per_action)
    for action, asked in request.per_action.items():
        allowed, ceiling = base.limits_for(action), met.get(action, NO_LIMITS)
        met[action] = _met_limits(f"per_action.{action}", allowed, ceiling, asked, layer)
    return met


def _met_limits(path: str, allowed: ActionLimits, ceiling: SomeLimits, asked: SomeLimits, layer: str) -> SomeLimits:
    for name, wanted in asked.named():
        narrowed(LIMITS[name], f"{path}.{name}", getattr(allowed, name), wanted, layer)
    return ceiling.model_copy(update=dict(asked.named()))


def _met_quotas(base: Policy, request: PolicyRequest, layer: str) -> dict[str, Quota]:
    met = dict(base.quotas)
    for action, asked in request.quotas.items():
        allowed = base.quota_for(action)
        for name, wanted in asked.named():
            narrowed(QUOTAS[name], f"quotas.{action}.{name}", getattr(allowed, name), wanted, layer)
        met[action] = met.get(action, NO_QUOTA).model_copy(update=dict(asked.named()))
    return met


@lru_cache(maxsize=64)
def policy_of(text: str) -> Policy:
    """A run's policy as it is stored. ValueError: another release wrote it."""
    return Policy.model_validate_json(text)


def policy_text(policy: Policy) -> str:
    """The policy as canonical JSON, as it is stored with the run. Read it with Policy.model_validate_json."""
    return canonical_text(policy.model_dump(mode="json"))


def policy_hash(policy: Policy) -> str:
    """SHA-256 of the policy's canonical JSON."""
    return sha256_hex(policy_text(policy))
