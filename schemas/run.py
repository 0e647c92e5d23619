"""A run from outside: what is submitted, and what is shown of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

from pydantic import Field, ValidationError, ValidationInfo, model_validator

from schemas.base import Generation, Hash, Moment, RunId, StepId, Strict
from schemas.canonical import NotCanonical, canonical_bytes, canonical_text, check, hash_of, parse_json
from schemas.issues import Issue, issues_of
from schemas.policy import PolicyRequest, Seconds
from schemas.states import RunStatus, StepStatus


@dataclass(frozen=True, slots=True)
class SubmissionLimits:
    """How large a submission may be, and which settings say so."""

    goal_bytes: int = 256 * 1024
    plan_bytes: int = 1024 * 1024
    goal_setting: str = "MANDOR_GOAL_BYTES"
    plan_setting: str = "MANDOR_PLAN_BYTES"


DEFAULT_LIMITS: Final = SubmissionLimits()
