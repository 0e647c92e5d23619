"""What the models share: strictness, and the texts that appear in more than one of them."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from schemas import ids

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000: Final = 253_402_300_800_000


class Strict(BaseModel):
    """No conversions, no unknown keys, no changes after construction."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def to_rfc3339(at_ms: int) -> str:
    """Milliseconds since the epoch as UTC text, `2026-01-31T09:30:00.250Z`."""
    moment = _EPOCH + timedelta(milliseconds=at_ms)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def to_ms(moment: Any) -> Any:
    """The reverse of to_rfc3339; anything else is left for the field to judge."""
    if not isinstance(moment, str):
        return moment
    parsed = datetime.fromisoformat(moment)
    if parsed.tzinfo is None:
        raise ValueError("the time has no zone")
    return (parsed - _EPOCH) // timedelta(milliseconds=1)


Moment = Annotated[
    int,
    Field(ge=0, lt=_YEAR_10000),
    BeforeValidator(to_ms),
    PlainSerializer(to_rfc3339, return_type=str, when_used="json"),
]
"""Milliseconds since the epoch inside; RFC 3339 text in JSON."""


def listed(value: Any) -> Any:
    """A list where a tuple is kept: Python callers write lists, frozen models hold tuples."""
    return tuple(value) if isinstance(value, list) else value


def _whole(pattern: str) -> str:
    return rf"^(?:{pattern})\z"


RunId = Annotated[str, Field(pattern=_whole(ids.RUN_ID.pattern))]
SessionKey = Annotated[str, Field(pattern=_whole(ids.SESSION_KEY.pattern))]
StepId = Annotated[str, Field(pattern=_whole(ids.STEP_ID.pattern))]
ActionName = Annotated[str, Field(pattern=_whole(ids.ACTION_NAME.pattern))]
Hash = Annotated[str, Field(pattern=_whole("[0-9a-f]{64}"))]
Generation = Annotated[int, Field(ge=1)]
