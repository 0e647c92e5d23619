"""The environment of processes that tests start: nothing of the caller's installation gets in."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ("MANDOR_", "CELERY_")
FOREIGN_NAMES = ("REDIS_URL", "APP", "PYTHONHOME")


def clean_environment(**settings: object) -> dict[str, str]:
    """This process's environment without any installation's settings, with ours: `redis_url=…` is MANDOR_REDIS_URL."""
    kept = {name: value for name, value in os.environ.items() if not is_foreign(name)}
    ours = {f"MANDOR_{name.upper()}": str(value) for name, value in settings.items()}
    return {**kept, **ours, "PYTHONPATH": str(ROOT)}


def is_foreign(name: str) -> bool:
    """True for a variable that would steer Mandor or Celery."""
    return name.startswith(FOREIGN) or name in FOREIGN_NAMES
