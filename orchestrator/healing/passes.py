"""How long ago supervisors looked: without passes nobody ends what died, and deadlines end nothing."""

from collections.abc import Mapping
from typing import Final

from orchestrator.healing.checks import Fault
from orchestrator.store import Store
from orchestrator.store.replies import Duty

LATE_PASSES: Final = 5  # so many intervals without a pass, and nobody is watching
LATE_LEAST_S: Final = 15.0
MEND: Final = "start beat (one is enough) and a worker on the supervise queue"


def ages_s(store: Store) -> dict[Duty, float | None]:
    """Of each duty, how long ago the shard that waits longest was looked at; None: one never was."""
    now = store.now_ms()
    return {duty: (now - at) / 1000 if at else None for duty, at in store.views.last_passes().items()}


def late(ages: Mapping[Duty, float | None], sweep_s: float) -> Fault | None:
    """What is wrong with these ages."""
    most_s = max(LATE_PASSES * sweep_s, LATE_LEAST_S)
    missing = sorted(duty for duty, age in ages.items() if age is None or age > most_s)
    if not missing:
        return None
    oldest = max((age for age in ages.values() if age is not None), default=None)
    told = "no pass ever" if oldest is None else f"the oldest of them {oldest:.0f} s ago"
    return Fault(f"no pass over {', '.join(missing)} for {most_s:.0f} s ({told})", MEND)
