"""The environment of processes that tests start: nothing of the caller's installation gets in."""

from pathlib import Path

from orchestrator.local.surroundings import clean, is_foreign

__all__ = ["ROOT", "clean_environment", "is_foreign"]

ROOT = Path(__file__).resolve().parents[2]


def clean_environment(**settings: object) -> dict[str, str]:
    """The same as `clean`, for programs that are to find this checkout."""
    return {**clean(**settings), "PYTHONPATH": str(ROOT)}
