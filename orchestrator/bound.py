"""By when a run has ended at the latest, whatever happens, once nothing is broken any more. Pure.

    deadline + stop grace + lease + two sweeps + asking what became of lost attempts
    + longest chain of undos x attempts x (limit + grace + longest back-off)

Asking has a limit of its own: an attempt that was told to stop may use another grace for its probe, and a lost one's is
asked by some worker for as long as a step waits for its action. Waiting for a person adds nothing: the deadline goes on
meanwhile, and ends what still waits.
"""

from collections.abc import Sequence

from orchestrator.settings import Settings
from orchestrator.store.views import RunState, StepState
from schemas.policy import OnFailure
from schemas.states import EffectClass

UNDO_TRIES = 2  # an undo is tried at least so often


def ended_by(run: RunState, steps: Sequence[StepState], settings: Settings) -> int:
    """Milliseconds since the epoch. steps: in the plan's order."""
    lease = max((round(settings.lease_s * 1000), *(step.lease_ms for step in steps)))
    undoing = longest_undo(steps, run.stop_grace_ms) if run.on_failure == OnFailure.COMPENSATE else 0
    found_out = run.stop_grace_ms + lease + round(2000 * settings.sweep_s) + asking_ms(run, steps, settings)
    return run.deadline_at + found_out + undoing


def asking_ms(run: RunState, steps: Sequence[StepState], settings: Settings) -> int:
    """How long it may take to know what became of an effect. Nobody is asked where no action has a probe."""
    if not any(step.probe for step in steps):
        return 0
    return run.stop_grace_ms + round(1000 * settings.dispatch_deadline_s)


def longest_undo(steps: Sequence[StepState], grace_ms: int) -> int:
    """How long the longest chain of undos may take, each waiting for those of the steps that needed it."""
    ends: dict[str, int] = {}
    for step in steps:
        ends[step.id] = undo_ms(step, grace_ms) + max((ends.get(need, 0) for need in step.needs), default=0)
    return max(ends.values(), default=0)


def undo_ms(step: StepState, grace_ms: int) -> int:
    """How long the undo of one step may take. A pure step has none."""
    if step.effect == EffectClass.PURE:
        return 0
    return max(UNDO_TRIES, step.max_attempts) * (step.limit_ms + grace_ms + step.backoff_max_ms)
