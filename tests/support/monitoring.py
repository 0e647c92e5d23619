"""What deploy/ ships for Prometheus, Alertmanager and Grafana, and their own tools to check it."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.support.environment import ROOT

INSTALL = "apt install prometheus prometheus-alertmanager"
DEPLOY = ROOT / "deploy"
PROMETHEUS = DEPLOY / "prometheus" / "prometheus.yml"
RULES = DEPLOY / "prometheus" / "mandor.rules.yml"
RULES_TEST = DEPLOY / "prometheus" / "mandor.rules.test.yml"
ALERTMANAGER = DEPLOY / "alertmanager" / "alertmanager.yml"
DASHBOARD = DEPLOY / "grafana" / "mandor.json"
METRICS_PAGE = ROOT / "docs" / "metrics.md"
METRIC = re.compile(r"\b((?:mandor|ai_worker)_\w+)(?:\{([^}]*)\})?")
# Grafana's own variables, as they may turn out
VARIABLES = {"$__rate_interval": "1m", "$__range": "3h", "$__interval": "15s"}


@dataclass(frozen=True)
class Alert:
    """A rule of ours. page: where runbook_url leads, from the root of the repository."""

    name: str
    expr: str
    severity: str
    action: str | None
    page: str


@dataclass(frozen=True)
class Query:
    """What a panel asks Prometheus. legend: how it names what it gets."""

    panel: str
    expr: str
    legend: str


@dataclass(frozen=True)
class Look:
    """At a time of a told story: does the alert fire then? story: its number in the file."""

    alert: str
    story: int
    fires: bool


def run_tool(tool: str, *arguments: str | Path) -> str:
    """What a tool of Prometheus says, all of it; a failure of it is one of the test."""
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"no {tool} here: {INSTALL}")
    done = subprocess.run([found, *map(str, arguments)], check=False, capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


@cache
def alerts() -> list[Alert]:
    """Every alert, read by the form that the file keeps to: a test counts them with promtool."""
    return [
        _alert(text) for text in re.split(r"^ +- alert: ", RULES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    ]


def _alert(text: str) -> Alert:
    expr = re.search(r"^ +expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)", text, re.MULTILINE)
    assert expr is not None, text
    return Alert(
        name=text.split("\n", 1)[0].strip(),
        expr=expr[1] or expr[2],
        severity=_field(text, "severity") or "",
        action=_field(text, "action"),
        page=_field(text, "runbook_url") or "",
    )


def _field(text: str, name: str) -> str | None:
    found = re.search(rf"^ +{name}: (.+)$", text, re.MULTILINE)
    return found[1] if found else None


def looks() -> list[Look]:
    """When the tests of the rules look at an alert, and what they expect."""
    stories = re.split(r"^  - name: ", RULES_TEST.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    at = re.compile(r"- eval_time: \S+\n +alertname: (\w+)\n +exp_alerts:( \[\])?\n")
    return [Look(name, number, not none) for number, text in enumerate(stories) for name, none in at.findall(text)]


@cache
def queries() -> list[Query]:
    """Every query of the dashboard, with Grafana's variables filled in."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [
        Query(panel["title"], _filled(target["expr"]), target["legendFormat"])
        for panel in panels
        for target in panel.get("targets", [])
    ]


def _filled(expr: str) -> str:
    for name, value in VARIABLES.items():
        expr = expr.replace(name, value)
    return expr


def selectors() -> set[str]:
    """What alerts and panels ask for of our metrics, each with its labels, without what they make of it."""
    asked = [alert.expr for alert in alerts()] + [query.expr for query in queries()]
    return {f"{name}{{{matchers}}}" for expr in asked for name, matchers in METRIC.findall(expr)}


@cache
def documented() -> dict[str, frozenset[str]]:
    """The labels of each metric of docs/metrics.md."""
    rows = re.findall(
        r"^\| (`(?:mandor|ai_worker)_.*?) \| (.*?) \|", METRICS_PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    found: dict[str, frozenset[str]] = {}
    for names, kind in rows:
        labels = frozenset(re.findall(r"`(\w+)`", kind))
        for name in re.findall(r"`(\w+)`", names):
            found[name] = labels
            if kind.startswith("histogram"):
                found |= {f"{name}_bucket": labels | {"le"}, f"{name}_count": labels, f"{name}_sum": labels}
    return found


def targets() -> dict[str, int]:
    """Port by role, as Prometheus is told to ask."""
    found = re.findall(
        r'targets: \["127\.0\.0\.1:(\d+)"\]\n +labels: \{role: (\w+)\}', PROMETHEUS.read_text(encoding="utf-8")
    )
    return {role: int(port) for port, role in found}
