"""How an action says what became of it, other than by returning its result.

    Snooze(seconds)        not yet: try again later; the attempt does not count (returned or raised)
    PermanentError         trying again is of no use
    AskedToWait            again, and no earlier than was said
    ├── ProviderError      by a service that did not answer
    └── TaskRetry          by a Celery task that called its `retry`
    NoEffect               nothing has happened outside, whatever was opened before
    AlreadyApplied         (raised by `Context.effect`) an earlier attempt's transaction committed; its result stands
    AttemptStopped         (raised by `Context.check` and `Context.effect`) this attempt may not go on
    ├── LeaseLost          somebody ended this claim: nothing it writes is accepted any more
    ├── TimeUp             the time limit of one attempt is used up
    ├── RunEnding          the run was cancelled, failed or reached its deadline
    └── WorkerStopping     the worker shuts down: the attempt is handed back and does not count

Any other exception means: again, as policy allows.
"""

from functools import partial
from typing import Any

from orchestrator.errors import MandorError
from schemas.policy import LONGEST_S


class Snooze(Exception):
    """Not yet. seconds: how long to wait before the next try."""

    def __init__(self, seconds: float) -> None:
        if not 0 <= seconds <= LONGEST_S:
            raise ValueError(f"Snooze takes seconds from 0 to {LONGEST_S:.0f}, not {seconds!r}")
        super().__init__(f"snooze for {seconds} s")
        self.seconds = seconds


class PermanentError(MandorError):
    """The step fails for good. Subclasses may set `kind`, a stable word that is stored with the error."""

    kind = "permanent"


class NoEffect(MandorError):
    """The action vouches that nothing happened outside, so that even a `once` step may be tried again."""

    kind = "no_effect"


class AskedToWait(MandorError):
    """Again, but not at once. retry_after_s: how long to leave it alone at least; 0 where nothing was said."""

    def __init__(self, message: str, *, hint: str | None = None, retry_after_s: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        """A failed task hands its error from process to process."""
        return partial(type(self), hint=self.hint, retry_after_s=self.retry_after_s), (self.message,)


class ProviderError(AskedToWait):
    """A service did not answer as it should. retry_after_s: when it said to come back."""

    kind = "provider"


class TaskRetry(AskedToWait):
    """The Celery task behind the action has called its `retry`."""

    kind = "task_retry"


class AlreadyApplied(Exception):
    """An earlier attempt's transaction committed. Leave the transaction by this exception: it rolls back."""

    def __init__(self, result_text: str) -> None:
        super().__init__("an earlier attempt has committed this effect")
        self.result_text = result_text


class AttemptStopped(MandorError):
    """The attempt is to end now. Let it pass: whatever comes after it is refused."""

    kind = "stopped"


class LeaseLost(AttemptStopped):
    """The claim was ended by somebody else."""

    kind = "lease_lost"


class TimeUp(AttemptStopped):
    """The attempt's time limit is used up."""

    kind = "timeout"


class RunEnding(AttemptStopped):
    """The run does not go on."""

    kind = "run_ending"


class WorkerStopping(AttemptStopped):
    """The worker process was asked to stop."""

    kind = "worker_stopping"
