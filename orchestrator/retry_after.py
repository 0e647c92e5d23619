"""The header Retry-After: when a server wants to hear of us again."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def seconds(given: str, most: float) -> float:
    """From now until then, at most `most`; 0 where it was not said in a readable way."""
    found = _number(given.strip())
    if found is None:
        found = _until(given.strip())
    return min(max(0.0, found), most)


def _number(given: str) -> float | None:
    try:
        found = float(given)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _until(given: str) -> float:
    try:
        at = parsedate_to_datetime(given)
    except (ValueError, OverflowError):  # the latter: a zone that is hours beyond all bounds
        return 0.0
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
