"""The environment of an installation that is thrown away: nothing of the caller's own gets in."""

import os
from collections.abc import Mapping
from typing import Final

FOREIGN: Final = ("MANDOR_", "CELERY_")
FOREIGN_NAMES: Final = ("REDIS_URL", "APP", "PYTHONHOME")


def is_foreign(name: str) -> bool:
    """True for a variable that would steer Mandor or Celery."""
    return name.startswith(FOREIGN) or name in FOREIGN_NAMES


def clean(**settings: object) -> dict[str, str]:
    """This process's environment without any installation's settings, with these: `redis_url=…` is MANDOR_REDIS_URL."""
    kept = {name: value for name, value in os.environ.items() if not is_foreign(name)}
    return {**kept, **{f"MANDOR_{name.upper()}": str(value) for name, value in settings.items()}}


def move_into(environment: Mapping[str, str]) -> None:
    """From here on this is what the process itself has, and hands on."""
    os.environ.clear()
    os.environ.update(environment)
