"""The exporter's gauges on real services, in states that were brought about one by one."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from orchestrator import app as celery_app
from orchestrator import dispatch, submission
from orchestrator.gauges import Gauges, Part
from orchestrator.ledger import DeliveryState, Outcome
from orchestrator.store.replies import DUTIES
from orchestrator.telemetry.logs import identity
from schemas.ids import RunRef
from schemas.states import RunStatus
from tests.support.installation import Installation, installation
from tests.support.ledgers import letter_named, run_named
from tests.support.proxy import Proxy
from tests.support.scraping import family, shown
from tests.support.servers import Server


@pytest.fixture
def ours(new_server: Callable[[], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    with installation(new_server().url, tmp_path, namespace="g", shards=2, store_timeout_s=1) as made:
        monkeypatch.setattr(celery_app, "app", made.app)
        yield made
        monkeypatch.undo()


def scrape(ours: Installation, gauges: Gauges | None = None) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(gauges or Gauges(ours.settings, ours.app))
    text = generate_latest(registry).decode()
    families = text_string_to_metric_families(text)
    return {shown(sample.name, sample.labels): sample.value for one in families for sample in one.samples}


def submit(ours: Installation, name: str, **fields: Any) -> RunRef:
    read = submission.read({"planner": "p", "request_id": name, **fields}, ours.settings)
    with identity(job_id=name):
        answer = submission.submit(ours.app, ours.store, ours.ledger, ours.settings, read, name)
    return RunRef(answer.run_id, "-")


def test_an_installation_at_rest(ours: Installation) -> None:
    found = scrape(ours)
    assert {found[f"mandor_{name}_up"] for name in ("store", "ledger", "broker")} == {1}
    assert family(found, "mandor_shards") == {"ours": 2}
    assert family(found, "mandor_pass_age_seconds") == dict.fromkeys(DUTIES, math.inf)
    nothing = ("runs_open", "runs_past_bound", "ledger_lag_seconds", "decisions_waiting", "leases_stale", "waits")
    assert {found[f"mandor_{name}"] for name in nothing} == {0}
    for shard in range(ours.store.shards):
        for duty in DUTIES:
            ours.store.runs.begin_pass(shard, duty, 0)
    ages = family(scrape(ours), "mandor_pass_age_seconds")
    assert all(age < 5 for age in ages.values())
    assert abs(found["mandor_clock_skew_seconds"]) < 1


def beside(ours: Installation) -> None:
    """What another installation on the same ledger waits for."""
    theirs = run_named("theirs", namespace="other")
    ours.ledger.accept(theirs)
    ours.ledger.decide(theirs.run_id, 1, "pause", "bob", None)
    ours.ledger.write_letter(letter_named("theirs"), "their letter", "other")


def test_what_waits_is_counted_and_has_an_age(ours: Installation) -> None:
    refs = [submit(ours, f"r{number}") for number in range(3)]
    ours.ledger.decide(refs[0].run_id, 1, "pause", "ada", None)
    ours.ledger.write_letter(letter_named("r0"), "a letter", ours.settings.namespace)
    beside(ours)
    queue = ours.queue("plan")
    found = scrape(ours)
    assert found["mandor_runs_open"] == 3
    assert 0 < found["mandor_runs_open_oldest_seconds"] < 30
    assert found["mandor_decisions_waiting"] == 1
    assert found['mandor_queue_messages{queue="plan"}'] == dispatch.queue_depth(ours.app, queue) == 3
    assert found['mandor_due_members{duty="deadlines"}'] == 3
    assert sum(family(found, "mandor_dead_letters").values()) == 1
    time.sleep(0.3)
    later = scrape(ours)
    assert (
        later['mandor_queue_oldest_seconds{queue="plan"}'] >= found['mandor_queue_oldest_seconds{queue="plan"}'] + 0.3
    )


def test_callbacks_that_wait_and_since_when_one_is_due(ours: Installation) -> None:
    assert (found := scrape(ours))["mandor_callbacks_waiting"] == found["mandor_callbacks_overdue_seconds"] == 0
    now = ours.ledger.now_ms()
    for ended_at in (now + 3_600_000, now - 60_000):
        run = run_named(f"told{ended_at}", namespace=ours.settings.namespace, callback="https://example.com/")
        ours.ledger.accept(run)
        ours.ledger.end_run(run.run_id, 1, RunStatus.SUCCEEDED, None, 9, ended_at)
    found = scrape(ours)
    assert found["mandor_callbacks_waiting"] == 2
    assert 60 <= found["mandor_callbacks_overdue_seconds"] < 90
    (due,) = ours.ledger.deliveries.take(ours.settings.namespace, 9, 1000)
    claim = ours.ledger.deliveries.claim(due, 1000)
    assert claim is not None
    assert ours.ledger.deliveries.note(claim, Outcome(DeliveryState.DELIVERED, 204))
    found = scrape(ours)
    assert found["mandor_callbacks_waiting"] == 1
    assert found["mandor_callbacks_overdue_seconds"] == 0  # what waits for its time is not late


def test_the_age_of_a_strangers_message_counts_from_when_it_was_seen_first(ours: Installation) -> None:
    ours.app.send_task("somebody.else", queue=ours.queue("control"))
    gauges, name = Gauges(ours.settings, ours.app), 'mandor_queue_oldest_seconds{queue="control"}'
    assert scrape(ours, gauges)[name] == 0
    time.sleep(0.2)
    assert 0.2 <= scrape(ours, gauges)[name] < 10
    ours.app.send_task("somebody.else", queue=ours.queue("control"))
    assert scrape(ours, gauges)[name] >= 0.2


def test_a_run_that_should_have_ended_long_ago(ours: Installation) -> None:
    ref = submit(ours, "late", deadline_s=0.05)
    time.sleep(0.1)
    store = ours.store
    assert scrape(ours)["mandor_runs_past_bound"] == 0  # overdue, and there is still time to end it
    assert scrape(ours)['mandor_due_overdue_seconds{duty="deadlines"}'] > 0
    store.scripts.tell("HSET", store.keys.state(ref), "deadline_at", 1)
    assert scrape(ours)["mandor_runs_past_bound"] == 1


def test_an_end_that_the_ledger_does_not_know(ours: Installation) -> None:
    ref = submit(ours, "ended")
    ours.store.runs.cancel(ref, 1, call_id="c")
    time.sleep(0.2)
    assert scrape(ours)["mandor_ledger_lag_seconds"] >= 0.2
    assert scrape(ours)["mandor_ledger_undrained"] == 2


def test_shards_that_are_not_ours(ours: Installation) -> None:
    store = ours.store
    store.scripts.tell("DEL", store.keys.shard_part(0, "epoch"))
    store.scripts.tell("SET", store.keys.shard_part(1, "server"), "another")
    assert family(scrape(ours), "mandor_shards") == {"lost": 1, "moved": 1}


def test_a_store_that_is_far_away(new_server: Callable[[], Server], tmp_path: Path) -> None:
    """All shards are asked at once, not one after the other."""
    server = new_server()
    with (
        Proxy(server.url) as proxy,
        installation(proxy.url, tmp_path, namespace="far", shards=16, broker_url=server.url) as made,
    ):
        gauges = Gauges(made.settings, made.app)
        scrape(made, gauges)  # its connections are open by now
        proxy.delay_s = 0.02
        found = scrape(made, gauges)
    assert (found["mandor_store_up"], family(found, "mandor_shards")) == (1, {"ours": 16})
    assert "mandor_ledger_undrained" in found
    assert found["mandor_exporter_seconds"] < 1


def test_services_that_are_away_leave_the_others(ours: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    gauges = Gauges(ours.settings, ours.app)
    scrape(ours, gauges)
    ours.app.backend.client.shutdown(nosave=True)
    started = time.monotonic()
    found = scrape(ours, gauges)
    assert time.monotonic() - started < 9  # within Prometheus's patience
    assert (found["mandor_store_up"], found["mandor_ledger_up"], found["mandor_broker_up"]) == (0, 1, 0)
    assert found["mandor_runs_open"] == 0
    assert "mandor_leases_stale" not in found


def test_a_service_that_hangs_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.gauges.PART_S", 0.1)
    back, asked = threading.Event(), []

    def read() -> list[Metric]:
        asked.append(1)
        back.wait(10)
        return [Metric("m", "m", "gauge")]

    part = Part("slow", read)
    assert [part.read() for _ in range(3)] == [[], [], []]
    assert len(asked) == 1
    back.set()
    for _ in range(100):
        if part.read():
            break
        time.sleep(0.01)
    assert part.read()
