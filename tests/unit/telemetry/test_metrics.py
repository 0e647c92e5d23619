"""Which fact moves which counter, and whether docs/metrics.md says so."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from orchestrator.telemetry import (
    aftermath,
    decided,
    events,
    facts,
    letting_go,
    logs,
    metrics,
    planned,
    recovered,
    signals,
)
from orchestrator.telemetry.metrics import ERROR_TYPES, Metrics
from tests.support.environment import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
FAILURES = "ai_worker_failures_total"
# told by the worker's main process, or by the exporter, at the moment of the scrape
PRESENT = re.compile(r"labelled\(\s*\"(\w+)\"|_gauge\(\s*\"(\w+)\"")


@pytest.fixture
def counted() -> Metrics:
    return Metrics(["test.echo", "test.note"])


def shown(counted: Metrics) -> dict[str, float]:
    """All samples but those that are 0."""
    found = {}
    for metric in counted._registry.collect():
        for sample in metric.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            if sample.value and not sample.name.endswith("_created"):
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def names(counted: Metrics) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each counter with its labels."""
    for metric in counted._registry.collect():
        for sample in metric.samples:
            if sample.name.endswith(("_total", "_count")):
                yield sample.name.removesuffix("_count"), tuple(sample.labels)


def test_the_page_names_every_metric_and_no_other(counted: Metrics) -> None:
    sources = ("gauges.py", "healing/worker.py", "healing/shown.py")
    text = "".join((ROOT / "orchestrator" / name).read_text(encoding="utf-8") for name in sources)
    present = {first or second for first, second in PRESENT.findall(text)}
    ups = {f"mandor_{part}_up" for part in ("store", "ledger", "broker")}
    known = {name for name, _ in names(counted)} | present | ups
    on_page = set(re.findall(r"`((?:ai_worker|mandor)_[a-z_]+)`", PAGE))
    assert on_page == known


def test_the_page_has_the_labels(counted: Metrics) -> None:
    for name, labels in set(names(counted)):
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))
        assert all(f"`{label}`" in row for label in labels), row


def test_every_value_of_a_closed_label_is_there_from_the_start(counted: Metrics) -> None:
    values = [
        sample.labels["error_type"]
        for metric in counted._registry.collect()
        for sample in metric.samples
        if sample.name == FAILURES
    ]
    assert values == list(ERROR_TYPES)
    assert {f"`{name}`" for name in ERROR_TYPES} <= set(re.findall(r"`\w+`", PAGE))


def test_buckets_are_as_given(counted: Metrics) -> None:
    edges = [
        sample.labels["le"]
        for metric in counted._registry.collect()
        for sample in metric.samples
        if sample.name == "ai_worker_loop_duration_seconds_bucket"
    ]
    assert edges == ["1.0", "5.0", "15.0", "30.0", "60.0", "120.0", "+Inf"]


def test_an_action_that_nobody_registered_is_other(counted: Metrics) -> None:
    counted(events.JobStart("test.echo", "pure", 1, 1))
    counted(events.JobStart("nobody's\n", "pure", 1, 1))
    counted(events.JobStart("test.echo", "pure", 1, 1, undo=True))
    assert shown(counted) == {
        'mandor_attempts_total{action="test.echo"}': 1,
        'mandor_attempts_total{action="other"}': 1,
    }


def failures(counted: Metrics, *told: Any) -> dict[str, float]:
    for fact in told:
        counted(fact)
    found = shown(counted)
    return {
        name.removeprefix(f'{FAILURES}{{error_type="').removesuffix('"}'): value
        for name, value in found.items()
        if name.startswith(FAILURES)
    }


@pytest.mark.parametrize(
    ("kind", "counts_as"),
    [
        ("step_error", "step_error"),
        ("permanent", "step_error"),
        ("whatever an action calls it", "step_error"),
        ("step_timeout", "step_timeout"),
        ("llm_timeout", "llm_timeout"),
        ("llm_rate_limited", "llm_rate_limited"),
        ("llm_unavailable", "llm_unavailable"),
        ("llm_misconfigured", "llm_unavailable"),
        ("step_input_invalid", "validation_error"),
        ("unknown_action", "invalid_action"),
    ],
)
def test_each_failed_attempt_is_one_failure(counted: Metrics, kind: str, counts_as: str) -> None:
    assert failures(counted, events.StepRetry(kind, 1, 0)) == {counts_as: 1}
    assert failures(counted, events.StepFailed(kind, 1)) == {counts_as: 2}
    assert failures(counted, events.StepInDoubt(kind, 1)) == {counts_as: 3}


@pytest.mark.parametrize("kind", ["run_ending", "worker_stopping", "lease_lost", "effect_closed"])
def test_an_attempt_that_was_told_to_end_is_none(counted: Metrics, kind: str) -> None:
    assert failures(counted, events.StepFailed(kind, 1)) == {}


def test_a_step_that_is_given_up_is_counted_beside_its_last_failure(counted: Metrics) -> None:
    assert failures(counted, events.StepFailed("step_error", 3, exhausted=True)) == {
        "step_error": 1,
        "retry_exhausted": 1,
    }


def test_answers_of_planners(counted: Metrics) -> None:
    told = (
        planned.AnswerRefused(0, 2, ("type", "unknown_action")),
        planned.AnswerRefused(1, 1, ("json",)),
        planned.PlanRejected(1, ("steps.0.action",), "letter", ("unknown_action",)),
        planned.PlannerFailed("p", "llm_rate_limited", will_retry=True),
        planned.PlannerFailed("p", "worker_lost", will_retry=False, exhausted=True),
    )
    assert failures(counted, *told) == {
        "invalid_action": 2,
        "validation_error": 1,
        "llm_rate_limited": 1,
        "retry_exhausted": 1,
    }


def test_a_lost_attempt_is_one_failure_however_many_tell_of_it(counted: Metrics) -> None:
    told = (
        events.ClaimEnded("parent", 1, noticed=True),
        events.ClaimEnded("redelivery", 1, "Again"),
        events.ClaimEnded("parent", 2, noticed=True, overdue=True),
        events.ClaimEnded("reclaim-stale-leases", 2, "Failed", exhausted=True),
        events.ClaimEnded("reclaim-stale-leases", 3, "Again", noticed=True),
        events.ClaimEnded("parent", 4, of="undo", noticed=True),
    )
    assert failures(counted, *told) == {"step_error": 2, "step_timeout": 1, "retry_exhausted": 1}
    assert shown(counted)["mandor_steps_failed_total"] == 1


def test_time_is_observed_for_steps_and_planners_only(counted: Metrics) -> None:
    for fact in (
        signals.LoopEnded("step", 2000),
        signals.LoopEnded("planner", 100_000),
        signals.LoopEnded("undo", 9),
        signals.AttemptKilled("step", "timeout", 70_000),
    ):
        counted(fact)
    found = shown(counted)
    assert (found["ai_worker_loop_duration_seconds_count"], found["ai_worker_loop_duration_seconds_sum"]) == (3, 172)
    assert found['ai_worker_loop_duration_seconds_bucket{le="60.0"}'] == 1


def test_each_workspace_that_does_not_go_is_counted_at_each_look(counted: Metrics) -> None:
    for failed in (1, 2):
        counted(letting_go.WorkspacesNotDone(failed, "os", "letting_go.py:1"))
    assert shown(counted) == {"mandor_workspace_failures_total": 3}


def test_what_must_never_be(counted: Metrics) -> None:
    for fact in (
        signals.CommittedTwice("s", 2),
        signals.PolicyMismatch("claim", "a", "b"),
        signals.VersionConflict("back", 8, 7),
        signals.NeverEnded(3),
        recovered.MemoryLost(3, "forgot", 0),
        recovered.ServerAccepted(3, 1),
    ):
        counted(fact)
    assert shown(counted) == {
        "mandor_extra_commits_total": 2,
        'mandor_policy_mismatches_total{at="claim"}': 1,
        'mandor_version_conflicts_total{kind="back"}': 1,
        "mandor_dispatches_over_completions_total": 3,
        'mandor_memory_losses_total{kind="amnesia"}': 1,
        'mandor_memory_losses_total{kind="moved"}': 1,
    }


def test_every_fact_that_exists_is_counted_or_left_out_on_purpose(counted: Metrics) -> None:
    """A new fact is not forgotten: whoever adds one says here that nobody counts it."""
    modules = (events, aftermath, decided, letting_go, planned, recovered, signals)
    kinds = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, events.Occurrence) and kind is not events.Occurrence
    }
    uncounted = {kind.__name__ for kind in kinds - counted._table.keys()}
    assert uncounted == {
        "PolicyResolved",
        "PlannerAnswered",
        "StopAsked",
        "EffectOpened",
        "EffectLanded",
        "EffectClosed",
        "EffectMayBeLate",
        "EffectUntold",
        "ProbeSent",
        "ProbeAnswered",
        "WorkspaceGone",
        "ArtifactsKept",
        "UndoBegun",
        "UndoLeft",
        "DecisionMade",
        "DecisionDone",
        "LetterDecided",
        "LetterDone",
        "WaitOver",
        "ListenerFailed",
        "HealthChanged",
        "HealthServed",
        "HealthNotServed",
        "MemoryNotRestored",
        "MemoryRestored",
        "RunMended",
        "RunNotBuilt",
        "RunNotRestored",
        "ServiceRefused",
    }


@dataclass
class FullDisk:
    """A listener that is an object, as the counters are; a dataclass has no hash."""

    errno: int = 28

    def __call__(self, _: events.Occurrence) -> None:
        raise OSError(self.errno, "no space left")


def full_disk(_: events.Occurrence) -> None:
    raise OSError("no space left")


def listen_alone(monkeypatch: pytest.MonkeyPatch, *listeners: facts.Listener) -> None:
    """These hear what is told from here on, and nobody else; none of them was ever reported."""
    monkeypatch.setattr(facts, "_listeners", list(listeners))
    monkeypatch.setattr(facts, "_broken", [])


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (full_disk, "full_disk"),
        (FullDisk(), "FullDisk"),
        (FullDisk().__call__, "FullDisk.__call__"),
        (partial(full_disk), "functools.partial"),
    ],
)
def test_a_listener_that_breaks_harms_nobody_and_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, broken: facts.Listener, name: str
) -> None:
    heard: list[events.Occurrence] = []
    listen_alone(monkeypatch, broken, heard.append)
    for _ in range(3):
        logs.emit(events.Published(1))
    told = [fact for fact in heard if isinstance(fact, signals.ListenerFailed)]
    assert [fact.kind for fact in told] == ["OSError"]
    assert told[0].listener.endswith(name)
    assert len(heard) == 4


def test_listeners_that_all_break_harm_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    listen_alone(monkeypatch, FullDisk(), full_disk)
    logs.emit(events.Published(1))


def test_no_code_that_works_counts_for_itself() -> None:
    """Only these know prometheus-client; the rest tells facts."""
    packages = (ROOT / "orchestrator", ROOT / "workers", ROOT / "schemas")
    knows = {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in package.rglob("*.py")
        if "prometheus_client" in path.read_text(encoding="utf-8")
    }
    assert knows == {
        "orchestrator/exporter.py",
        "orchestrator/gauges.py",
        "orchestrator/healing/pages.py",
        "orchestrator/healing/shown.py",
        "orchestrator/healing/worker.py",
        "orchestrator/telemetry/counting.py",
        "orchestrator/telemetry/metrics.py",
        "orchestrator/telemetry/reserved.py",
    }


def test_kinds_of_errors_that_the_table_names_exist() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "workers").rglob("*.py"))
    text += (ROOT / "orchestrator" / "errors.py").read_text() + (ROOT / "orchestrator/admission/refusal.py").read_text()
    missing = {kind for kind in (*metrics._ERROR_TYPES, *metrics._NO_FAILURES) if f'"{kind}"' not in text}
    assert missing == set()
