"""The policy of a run, resolved once, when its submission arrives.

    installation    settings (MANDOR_*), then the file MANDOR_POLICY_FILE
    request         what the submission asks to be narrowed, its own deadline included

In the file, `per_action` says what holds for one action here, in either direction; everything else in it narrows
the settings. A request can only narrow.
"""

from pathlib import Path

from pydantic import ValidationError

from orchestrator.errors import ConfigError, SubmissionRefused
from orchestrator.settings import Settings, env_name
from schemas.canonical import NotCanonical, parse_json
from schemas.issues import issues_of
from schemas.policy import ActionLimits, Policy, PolicyRequest, PolicyWidened, meet

FILE_BYTES = 1024 * 1024
_FILE_SETTING = env_name("policy_file")
_BYTES = ("result_bytes", "inputs_bytes", "plan_bytes")
_SCALARS = ("max_steps", "max_parallel", "deadline_s", "stop_grace_s", "wait_s", *_BYTES)


def resolve(settings: Settings, request: PolicyRequest | None = None, deadline_s: float | None = None) -> Policy:
    """The policy of one run. ConfigError: the installation's own; SubmissionRefused: the request would widen it."""
    policy = installation_policy(settings)
    if request is not None:
        policy = _narrowed(policy, request, "policy.")
    if deadline_s is not None:
        policy = _narrowed(policy, PolicyRequest(deadline_s=deadline_s), "")
    return policy


def installation_policy(settings: Settings) -> Policy:
    """What this installation allows a run at most."""
    policy = _from_settings(settings)
    if settings.policy_file is None:
        return policy
    request = _read_file(settings.policy_file)
    fixed = policy.model_copy(update={"per_action": request.per_action})
    try:
        return meet(fixed, request.model_copy(update={"per_action": {}}), "policy file")
    except PolicyWidened as wider:
        hint = f"raise {env_name(wider.field.removeprefix('limits.'))} or lower the file's value"
        raise ConfigError(str(wider), path=_FILE_SETTING, hint=hint) from None


def _from_settings(settings: Settings) -> Policy:
    limits = {name: getattr(settings, name) for name in ActionLimits.model_fields}
    return Policy(limits=ActionLimits(**limits), **{name: getattr(settings, name) for name in _SCALARS})


def _read_file(path: Path) -> PolicyRequest:
    try:
        text = path.read_bytes()
        parse_json(text, max_bytes=FILE_BYTES)
        return PolicyRequest.model_validate_json(text)
    except OSError as wrong:
        message = f"the policy file {path} cannot be read: {wrong.strerror}"
        raise ConfigError(message, path=_FILE_SETTING, hint="correct the path or unset it") from None
    except NotCanonical as wrong:
        raise ConfigError(f"{path}: {wrong}", path=_FILE_SETTING, hint="the file is one JSON object") from None
    except ValidationError as refusal:
        first = issues_of(refusal)[0]
        message = f"{path}: {first.path}: {first.message}"
        raise ConfigError(
            message, path=_FILE_SETTING, hint=f"fields: {', '.join(PolicyRequest.model_fields)}"
        ) from None


def _narrowed(policy: Policy, request: PolicyRequest, prefix: str) -> Policy:
    try:
        return meet(policy, request, "request")
    except PolicyWidened as wider:
        hint = "a request can only narrow what the installation allows"
        raise SubmissionRefused(str(wider), path=f"{prefix}{wider.field}", hint=hint) from None
