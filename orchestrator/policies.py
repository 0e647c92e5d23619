"""The policy of a run, resolved once, when its submission arrives, from layers of which each can only narrow the last.

    installation    settings (MANDOR_*), then the file MANDOR_POLICY_FILE
    principal       what the file says in `principals` of who submits: `celery`, for whatever comes over the broker
    request         what the submission asks to be narrowed, its own deadline included

In the file, `per_action` says what holds for one action here, in either direction; everything else in it narrows
the settings.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, ValidationError

from orchestrator.errors import ConfigError, SubmissionRefused
from orchestrator.settings import Settings, env_name
from schemas.canonical import NotCanonical, parse_json
from schemas.issues import issues_of
from schemas.narrowing import PolicyWidened
from schemas.policy import LIMIT_FIELDS, ActionLimits, Policy, PolicyRequest, SomeLimits, meet

FILE_BYTES: Final = 1024 * 1024
LAYERS: Final = ("settings", "file", "principal", "request")
FROM_BROKER: Final = "celery"
FILE_SETTING: Final = env_name("policy_file")
SETTINGS_FIELDS: Final = (
    *("max_steps", "max_parallel", "deadline_s", "stop_grace_s", "wait_s"),
    *("result_bytes", "inputs_bytes", "plan_bytes"),
    *("file_bytes", "workspace_bytes", "workspace_files", "record_bytes", "record_keys", "record_depth"),
    *("min_rung", "command_time_s", "command_cpu_s", "command_memory_bytes", "command_processes"),
    *("command_output_bytes", "command_file_bytes"),
    *("workspace_keep_s", "artifact_bytes"),
)
PrincipalName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\z")]


class PolicyFile(PolicyRequest):
    """What the operator says beyond the settings. principals: what else holds for runs of who is named."""

    principals: dict[PrincipalName, PolicyRequest] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stage:
    """The policy as it is once a layer was heard. layer: one of LAYERS."""

    layer: str
    policy: Policy


def resolve(
    settings: Settings,
    request: PolicyRequest | None = None,
    deadline_s: float | None = None,
    principal: str = FROM_BROKER,
) -> Policy:
    """The policy of one run. ConfigError: the installation's own; SubmissionRefused: the request would widen it."""
    return stages(settings, request, deadline_s, principal)[-1].policy


def stages(
    settings: Settings,
    request: PolicyRequest | None = None,
    deadline_s: float | None = None,
    principal: str = FROM_BROKER,
) -> tuple[Stage, ...]:
    """How that policy comes about, layer after layer. Refusals as for `resolve`."""
    given = _read_file(settings.policy_file)
    of_settings = _from_settings(settings)
    of_file = _by_file(of_settings.model_copy(update={"per_action": given.per_action}), given)
    of_principal = _of_each_principal(of_file, given).get(principal, of_file)
    of_request = _requested(of_principal, request, deadline_s)
    policies = (of_settings, of_file, of_principal, of_request)
    return tuple(Stage(layer, policy) for layer, policy in zip(LAYERS, policies, strict=True))


def heard(resolved: tuple[Stage, ...]) -> tuple[str, ...]:
    """The layers that had a say: the settings, and those that narrowed what was there before."""
    later = (stage.layer for before, stage in pairwise(resolved) if stage.policy != before.policy)
    return (LAYERS[0], *later)


def installation_policy(settings: Settings) -> Policy:
    """What this installation allows a run at most, whoever submits it. ConfigError: also where only one principal's
    part of the file is wrong.
    """
    return stages(settings)[1].policy


# ---- settings and file


def _from_settings(settings: Settings) -> Policy:
    limits = {name: getattr(settings, name) for name in LIMIT_FIELDS}
    protected = frozenset(name for name in settings.protected_names.split(",") if name)
    fields = {name: getattr(settings, name) for name in SETTINGS_FIELDS}
    return Policy(limits=ActionLimits(**limits), protected_names=protected, **fields)


def _read_file(path: Path | None) -> PolicyFile:
    if path is None:
        return PolicyFile()
    try:
        text = path.read_bytes()
        parse_json(text, max_bytes=FILE_BYTES)
        return PolicyFile.model_validate_json(text)
    except OSError as wrong:
        message = f"the policy file {path} cannot be read: {wrong.strerror}"
        raise ConfigError(message, path=FILE_SETTING, hint="correct the path or unset it") from None
    except NotCanonical as wrong:
        raise ConfigError(f"{path}: {wrong}", path=FILE_SETTING, hint="the file is one JSON object") from None
    except ValidationError as refusal:
        first = issues_of(refusal)[0]
        hint = f"fields: {', '.join(PolicyFile.model_fields)}"
        raise ConfigError(f"{path}: {first.path}: {first.message}", path=FILE_SETTING, hint=hint) from None


def _by_file(fixed: Policy, given: PolicyFile) -> Policy:
    """The file's part that is for everybody. fixed: with what it says of single actions."""
    policy = _installed(fixed, given.model_copy(update={"per_action": {}}), "")
    for action, said in given.per_action.items():
        _refuse_unheard(policy, action, said)
    return policy


def _refuse_unheard(policy: Policy, action: str, said: SomeLimits) -> None:
    """What the file says of one action, and takes back with what it says of all, is a mistake that nobody would see."""
    limits = policy.limits_for(action)
    for name, value in said.named():
        holds = getattr(limits, name)
        if holds != value:
            message = f"per_action.{action}.{name}: {value} is said, but {holds} holds by what else the file says"
            hint = f"bring per_action.{action} and limits into agreement; limits hold for every action"
            raise ConfigError(message, path=FILE_SETTING, hint=hint)


def _of_each_principal(policy: Policy, given: PolicyFile) -> dict[str, Policy]:
    """All of them, so that a fault in one is found before that one submits."""
    return {name: _installed(policy, asked, f"principals.{name}.") for name, asked in given.principals.items()}


def _installed(policy: Policy, asked: PolicyRequest, prefix: str) -> Policy:
    try:
        return meet(policy, asked, "policy file")
    except PolicyWidened as wider:
        raise ConfigError(f"{prefix}{wider}", path=FILE_SETTING, hint=_mend(wider.field, prefix)) from None


def _mend(field: str, prefix: str) -> str:
    setting = field.removeprefix("limits.")
    if not prefix and setting in Settings.model_fields:
        return f"raise {env_name(setting)} or lower the file's value"
    return f"ask for no more in {prefix}{field} than the rest of the file and the settings allow everybody"


# ---- request


def _requested(policy: Policy, request: PolicyRequest | None, deadline_s: float | None) -> Policy:
    if request is not None:
        policy = _narrowed(policy, request, "policy.")
    if deadline_s is not None:
        policy = _narrowed(policy, PolicyRequest(deadline_s=deadline_s), "")
    return policy


def _narrowed(policy: Policy, request: PolicyRequest, prefix: str) -> Policy:
    try:
        return meet(policy, request, "request")
    except PolicyWidened as wider:
        hint = f"leave {prefix}{wider.field} out or ask for less; `mandor config policy` shows what is allowed"
        raise SubmissionRefused(str(wider), path=f"{prefix}{wider.field}", hint=hint) from None
