"""What a worker sees by the way, and what must never be: told, counted, and for a person to look into."""

from functools import lru_cache

from orchestrator.store.replies import Granted, PlanGranted
from orchestrator.telemetry import logs, signals
from schemas.canonical import sha256_hex


def compare_policy(granted: Granted | PlanGranted) -> None:
    """The policy that came with a claim is the one whose hash the run bears."""
    found = _hash(granted.policy_text)
    if found != granted.policy_hash:
        logs.emit(signals.PolicyMismatch("claim", granted.policy_hash, found))


def compare_version(granted: Granted, after: int) -> None:
    """Each transition makes a run's version greater, so a commit has a greater one than its claim."""
    if after <= granted.version:
        logs.emit(signals.VersionConflict("back", granted.version, after))


@lru_cache(maxsize=64)
def _hash(policy_text: str) -> str:
    return sha256_hex(policy_text)
