"""Which fact moves which counter: the one table. Nobody else counts anything; docs/metrics.md says what each means.

Labels come from closed sets, and each is there from the start with 0. What is not in its set is counted as `other`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram

from orchestrator import names
from orchestrator.telemetry import (
    aftermath,
    callbacks,
    commands,
    events,
    letting_go,
    planned,
    recovered,
    signals,
)
from orchestrator.telemetry.events import Occurrence
from schemas.dead_letter import DeadLetterKind
from schemas.policy import Rung
from schemas.states import RUN_TERMINAL

OTHER: Final = "other"
LOOP_BUCKETS: Final = (1, 5, 15, 30, 60, 120)
EXHAUSTED: Final = "retry_exhausted"
ERROR_TYPES: Final = (
    "validation_error",
    "invalid_action",
    "llm_timeout",
    "llm_rate_limited",
    "llm_unavailable",
    "step_error",
    "step_timeout",
    EXHAUSTED,
)
OUTCOMES: Final = (
    "committed",
    "retry_at",
    "failed",
    "in_doubt",
    "skipped",
    "too_often",
    "fenced",
    "left_to_lease",
    "unknown_run",
)
HAND_BACKS: Final = ("snooze", "worker_stopping", "unknown_action", "ledger_away")
REFUSALS: Final = ("busy", "stop", "not_due", "other_generation", "close_first", "stored", "unknown_run")
ENDERS: Final = ("parent", "redelivery", "probe", "reclaim-stale-leases")

# kinds of errors that are no failure of what was tried: it was told to end, or somebody else goes on with it
_NO_FAILURES: Final = frozenset({"run_ending", "worker_stopping", "lease_lost", "effect_closed", "worker_lost"})
_ERROR_TYPES: Final = {
    **{name: name for name in ERROR_TYPES if name.startswith("llm_")},
    "llm_misconfigured": "llm_unavailable",
    "step_timeout": "step_timeout",
    "unknown_action": "invalid_action",
    "step_input_invalid": "validation_error",
    "planner_input_invalid": "validation_error",
    "plan_mistake": "validation_error",
    "payload_drift": "validation_error",
    "not_found": "invalid_action",  # of a planner's name: nobody here has it
}
F = TypeVar("F", bound=Occurrence)


def error_type(kind: str) -> str | None:
    """The one of ERROR_TYPES that an error of this kind counts as; None: it is no failure."""
    return None if kind in _NO_FAILURES else _ERROR_TYPES.get(kind, "step_error")


def refused_as(kinds: Iterable[str]) -> str:
    """What an answer counts as that the door refused for these reasons."""
    return "invalid_action" if "unknown_action" in kinds else "validation_error"


class Metrics:
    """The counters of one process. actions: the names that a label may be, known when the worker has loaded them."""

    def __init__(self, actions: Iterable[str]) -> None:
        self._registry = CollectorRegistry()
        self._table: dict[type[Occurrence], Callable[[Any], None]] = {}
        self._judged_by(actions)
        self._runs()
        self._attempts()
        self._commands()
        self._meetings()
        self._callbacks()
        self._control()

    def __call__(self, fact: Occurrence) -> None:
        """Count a fact, if it counts."""
        count = self._table.get(type(fact))
        if count is not None:
            count(fact)

    def _on(self, fact: type[F], count: Callable[[F], None]) -> None:
        assert fact not in self._table, f"{fact.__name__} is counted in two places"
        self._table[fact] = count

    # ---- what everything is judged by

    def _judged_by(self, actions: Iterable[str]) -> None:
        self._seconds = Histogram(
            "ai_worker_loop_duration_seconds",
            "Time of one attempt of a step or one call of a planner, whatever its end.",
            buckets=LOOP_BUCKETS,
            registry=self._registry,
        )
        self._failures = self._labelled(
            "ai_worker_failures_total", "Attempts, answers and planner calls that failed.", "error_type", ERROR_TYPES
        )
        self._began = self._labelled("mandor_attempts_total", "Attempts of steps that began.", "action", actions)
        model_calls = self._plain("mandor_model_calls_total", "Requests to a model, answered or not.")
        tokens = self._labelled(
            "mandor_model_tokens_total", "Tokens as providers count them.", "direction", ("input", "output")
        )

        def model_called(fact: planned.ModelCalled) -> None:
            model_calls.inc()
            tokens("input").inc(fact.input_tokens)
            tokens("output").inc(fact.output_tokens)

        self._on(planned.ModelCalled, model_called)
        self._on(planned.ModelFailed, lambda _: model_calls.inc())
        self._on(signals.LoopEnded, lambda fact: self._took(fact.loop, fact.duration_ms))
        self._on(signals.AttemptKilled, lambda fact: self._took(fact.loop, fact.duration_ms))

    def _took(self, loop: signals.Loop, duration_ms: int) -> None:
        if loop != "undo":
            self._seconds.observe(duration_ms / 1000)

    def _fail(self, kind: str, *, exhausted: bool = False) -> None:
        counted = error_type(kind)
        if counted is not None:
            self._failures(counted).inc()
        if exhausted:
            self._failures(EXHAUSTED).inc()

    # ---- runs and their plans

    def _runs(self) -> None:
        accepted = self._plain("mandor_runs_accepted_total", "Submissions that made a new run.")
        ended = self._labelled("mandor_runs_ended_total", "Runs that ended.", "status", sorted(RUN_TERMINAL))
        self._on(events.RunAccepted, lambda fact: accepted.inc(fact.created))
        self._on(events.RunSettled, lambda fact: ended(fact.status).inc())
        self._each(events.RunRefused, "mandor_runs_refused_total", "Submissions that did not fit.")
        self._each(planned.PlannerCalled, "mandor_planner_calls_total", "Calls of a planner, repairs included.")
        refused = self._plain("mandor_answers_refused_total", "Answers that were refused and may be mended.")
        plans = self._labelled("mandor_plans_total", "The door's verdicts.", "verdict", ("admitted", "rejected"))

        def answer_refused(fact: planned.AnswerRefused) -> None:
            refused.inc()
            self._failures(refused_as(fact.kinds)).inc()

        def plan_rejected(fact: planned.PlanRejected) -> None:
            plans("rejected").inc()
            self._failures(refused_as(fact.kinds)).inc()

        self._on(planned.AnswerRefused, answer_refused)
        self._on(planned.PlanRejected, plan_rejected)
        self._on(planned.PlanAdmitted, lambda _: plans("admitted").inc())
        self._on(planned.PlannerFailed, lambda fact: self._fail(fact.kind, exhausted=fact.exhausted))

    # ---- attempts of steps

    def _attempts(self) -> None:
        ends = self._labelled(
            "mandor_attempts_ended_total", "Attempts that ended in their own process.", "outcome", OUTCOMES
        )
        self._on(events.JobStart, lambda fact: None if fact.undo else self._began(fact.action).inc())
        self._on(events.JobEnd, lambda fact: None if fact.undo else ends(fact.outcome).inc())
        self._each(
            events.StepCommitted, "mandor_steps_committed_total", "Results stored by the attempt that made them."
        )
        backs = self._labelled(
            "mandor_steps_handed_back_total", "Attempts that were given back uncounted.", "reason", HAND_BACKS
        )
        self._on(events.StepHandedBack, lambda fact: backs(fact.reason).inc())
        retried = self._plain("mandor_steps_retried_total", "Attempts after which the step is tried again.")
        failed = self._plain("mandor_steps_failed_total", "Steps that failed for good.")
        doubtful = self._plain("mandor_steps_in_doubt_total", "Steps of which nobody knows whether they happened.")

        def retry(fact: events.StepRetry) -> None:
            retried.inc()
            self._fail(fact.kind)

        def fail(fact: events.StepFailed) -> None:
            failed.inc()
            self._fail(fact.kind, exhausted=fact.exhausted)

        def doubt(fact: events.StepInDoubt) -> None:
            doubtful.inc()
            self._fail(fact.kind, exhausted=fact.exhausted)

        self._on(events.StepRetry, retry)
        self._on(events.StepFailed, fail)
        self._on(events.StepInDoubt, doubt)
        self._lost(failed, doubtful)

    def _lost(self, failed: Counter, doubtful: Counter) -> None:
        """Attempts whose process is gone are told of by those who notice, and by those who end their claim."""
        ended = self._labelled("mandor_claims_ended_total", "Claims of holders that are gone.", "by", ENDERS)

        def claim_ended(fact: events.ClaimEnded) -> None:
            ended(fact.by).inc()
            if fact.of == "undo":
                return
            if fact.noticed:
                self._failures("step_timeout" if fact.overdue else "step_error").inc()
            if fact.exhausted:
                self._failures(EXHAUSTED).inc()
            if fact.of == "step" and fact.verdict in ("Failed", "InDoubt"):
                (failed if fact.verdict == "Failed" else doubtful).inc()

        self._on(events.ClaimEnded, claim_ended)

    # ---- commands, and their files

    def _commands(self) -> None:
        run = self._labelled("mandor_commands_total", "Commands that were started.", "rung", list(Rung))
        self._on(commands.CommandRun, lambda fact: run(fact.rung).inc())
        self._each(commands.SandboxFailed, "mandor_sandbox_failures_total", "Sandboxes that could not be made.")
        stuck = self._plain("mandor_workspace_failures_total", "Workspaces that a look could not let go.")
        self._on(letting_go.WorkspacesNotDone, lambda fact: stuck.inc(fact.failed))

    # ---- when things meet that should not

    def _meetings(self) -> None:
        hits = self._labelled(
            "mandor_idempotency_hits_total", "Deliveries of work that had been done.", "source", ("commit", "effect")
        )
        self._on(events.IdempotencyHit, lambda fact: hits(fact.source).inc())
        refused = self._labelled("mandor_claims_refused_total", "Deliveries that may not start.", "reply", REFUSALS)
        self._on(events.ClaimRefused, lambda fact: refused(fact.reply).inc())
        self._each(events.LeaseLost, "mandor_leases_lost_total", "Holders that found their claim ended.")
        self._each(events.LeaseNotRenewed, "mandor_leases_not_renewed_total", "Renewals that got no answer.")
        self._each(events.CommitFenced, "mandor_commits_fenced_total", "Results of claims that were not current.")
        closed = self._labelled(
            "mandor_effects_refused_total", "Effect rows closed to their attempt.", "late", ("true", "false")
        )
        self._on(events.EffectRefused, lambda fact: closed(str(fact.late).lower()).inc())
        twice = self._plain("mandor_extra_commits_total", "Commits of a step in a generation over the first.")
        self._on(signals.CommittedTwice, lambda fact: twice.inc(fact.extra))
        policies = self._labelled(
            "mandor_policy_mismatches_total", "Policies that are not the run's.", "at", ("claim", "end")
        )
        self._on(signals.PolicyMismatch, lambda fact: policies(fact.at).inc())
        versions = self._labelled(
            "mandor_version_conflicts_total", "Versions that do not follow.", "kind", ("back", "gap")
        )
        self._on(signals.VersionConflict, lambda fact: versions(fact.kind).inc())
        over = self._plain("mandor_dispatches_over_completions_total", "Steps of ended runs that never ended.")
        self._on(signals.NeverEnded, lambda fact: over.inc(fact.steps))

    # ---- who is told of ends

    def _callbacks(self) -> None:
        told = self._labelled(
            "mandor_callbacks_total",
            "Attempts to tell a run's end.",
            "outcome",
            ("delivered", "failed", "disabled", "given_up"),
        )
        self._on(callbacks.CallbackSent, lambda _: told("delivered").inc())
        self._on(callbacks.CallbackFailed, lambda _: told("failed").inc())
        self._on(callbacks.CallbackOver, lambda fact: told(fact.state).inc())

    # ---- those who watch

    def _control(self) -> None:
        letters = self._labelled(
            "mandor_letters_total", "Dead letters written.", "kind", [kind.value for kind in DeadLetterKind]
        )
        self._on(events.LetterWritten, lambda fact: letters(fact.kind).inc())
        messages = self._labelled("mandor_messages_total", "Messages to the broker.", "outcome", ("sent", "failed"))
        self._on(events.Published, lambda fact: messages("sent").inc(fact.messages))
        self._on(events.PublishFailed, lambda fact: messages("failed").inc(fact.messages))
        moved = self._labelled("mandor_supervised_total", "What supervisors moved on.", "supervisor", names.SUPERVISORS)
        self._on(events.PassDone, lambda fact: moved(fact.supervisor).inc(fact.counts.get("moved", 0)))
        broken = self._labelled("mandor_pass_failures_total", "Passes that broke off.", "supervisor", names.SUPERVISORS)
        self._on(events.PassFailed, lambda fact: broken(fact.supervisor).inc())
        losses = self._labelled(
            "mandor_memory_losses_total",
            "Shards whose server was another one, or had forgotten runs.",
            "kind",
            ("moved", "amnesia"),
        )
        self._on(recovered.MemoryLost, lambda _: losses("amnesia").inc())
        self._on(recovered.ServerAccepted, lambda _: losses("moved").inc())
        undos = self._labelled(
            "mandor_undos_total", "Attempts to undo a step.", "outcome", ("committed", "retry", "given_up")
        )
        self._on(aftermath.UndoCommitted, lambda _: undos("committed").inc())
        self._on(aftermath.UndoRetry, lambda _: undos("retry").inc())
        self._on(aftermath.UndoGivenUp, lambda _: undos("given_up").inc())

    # ---- how a counter is made

    def _plain(self, name: str, help_text: str) -> Counter:
        return Counter(name, help_text, registry=self._registry)

    def _each(self, fact: type[Occurrence], name: str, help_text: str) -> None:
        counter = self._plain(name, help_text)
        self._on(fact, lambda _: counter.inc())

    def _labelled(self, name: str, help_text: str, label: str, known: Iterable[str]) -> Callable[[str], Counter]:
        """The counter of a label's value, or of `other`: all of them made now. There is no other type of error."""
        whole = Counter(name, help_text, [label], registry=self._registry)
        made = {value: whole.labels(value) for value in (*known, *([] if label == "error_type" else [OTHER]))}
        return lambda value: made.get(value) or made[OTHER]
