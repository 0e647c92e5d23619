"""What deploy/ ships is what Prometheus, Alertmanager and Grafana take, and the alerts fire when they should."""

import re
from pathlib import Path

import pytest

from tests.support.monitoring import (
    ALERTMANAGER,
    PROMETHEUS,
    RULES,
    RULES_TEST,
    Alert,
    alerts,
    looks,
    queries,
    run_tool,
)

CRITICAL = {"AIWorkerExhaustedRetries", "AIWorkerExecutionStall"}


def test_prometheus_takes_its_configuration() -> None:
    assert "is valid prometheus config" in run_tool("promtool", "check", "config", PROMETHEUS)


def test_prometheus_takes_the_rules_and_we_read_all_of_them() -> None:
    assert f"{len(alerts())} rules found" in run_tool("promtool", "check", "rules", RULES)


@pytest.mark.full
def test_alerts_fire_when_they_should_and_end() -> None:
    assert "SUCCESS" in run_tool("promtool", "test", "rules", RULES_TEST)


@pytest.mark.parametrize("name", [alert.name for alert in alerts()])
def test_each_alert_is_seen_to_fire_to_keep_silent_and_to_end(name: str) -> None:
    mine = [look for look in looks() if look.alert == name]
    told = {number: [look.fires for look in mine if look.story == number] for number in {look.story for look in mine}}
    assert any(fires[0] is False and True in fires and fires[-1] is False for fires in told.values()), "fires, and ends"
    assert any(True not in fires for fires in told.values()), "a story in which it keeps silent"


def test_two_alerts_are_for_rollbacks_and_no_other_is_critical() -> None:
    assert {alert.name for alert in alerts() if alert.action == "auto-rollback"} == CRITICAL
    assert {alert.name for alert in alerts() if alert.severity == "critical"} == CRITICAL
    assert {alert.severity for alert in alerts()} == {"critical", "warning"}
    group = RULES.read_text(encoding="utf-8").split("- name: ai_worker_guardrails")[1].split("  - name: ")[0]
    assert set(re.findall(r"- alert: (\w+)", group)) == CRITICAL


def test_prometheus_takes_every_query_of_the_dashboard(tmp_path: Path) -> None:
    assert len(queries()) > 40
    rules = [
        line
        for number, query in enumerate(queries())
        for line in (f"      - record: panel:{number}", "        expr: |", f"          {query.expr}")
    ]
    file = tmp_path / "panels.yml"
    file.write_text("\n".join(["groups:", "  - name: panels", "    rules:", *rules, ""]), encoding="utf-8")
    assert f"{len(queries())} rules found" in run_tool("promtool", "check", "rules", file)


def test_alertmanager_takes_its_configuration() -> None:
    assert "SUCCESS" in run_tool("amtool", "check-config", ALERTMANAGER)


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert.name)
def test_the_critical_ones_wake_somebody_and_the_others_nobody(alert: Alert) -> None:
    receiver = "on_call" if alert.severity == "critical" else "team"
    labels = [f"alertname={alert.name}", f"severity={alert.severity}"]
    run_tool(
        "amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}", f"--verify.receivers={receiver}", *labels
    )


def test_what_is_quiet_because_of_another_is_an_alert_of_ours_and_never_critical() -> None:
    text = ALERTMANAGER.read_text(encoding="utf-8")
    named = re.findall(r"\b(?:AIWorker|Mandor)\w+", text.split("inhibit_rules:")[1])
    assert named
    assert set(named) <= {alert.name for alert in alerts()} - CRITICAL
