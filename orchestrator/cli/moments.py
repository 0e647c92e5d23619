"""Times as a person says them: how long ago, or when."""

import re
import time
from datetime import datetime
from typing import Any, Final

import click

UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
AGO: Final = re.compile(r"(\d{1,9})([smhd])")


class Moment(click.ParamType[int]):
    """`90s`, `15m`, `2h`, `7d` ago, or an ISO 8601 date or time, in the reader's time zone unless it names one.

    Milliseconds since the epoch.
    """

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The moment, or a usage error."""
        if isinstance(value, int):
            return value
        try:
            return moment(value, time.time_ns() // 1_000_000)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no time; say 2h (s, m, h, d ago) or 2026-02-01T08:00Z", param, ctx)


def moment(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch. ValueError: it is no time."""
    ago = AGO.fullmatch(text)
    if ago:
        return now_ms - int(ago[1]) * UNIT_S[ago[2]] * 1000
    return round(datetime.fromisoformat(text).timestamp() * 1000)
