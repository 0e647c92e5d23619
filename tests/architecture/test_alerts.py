"""Alerts, their pages and the dashboard speak of what docs/metrics.md and the command line really have."""

import re
import shlex
from pathlib import Path

import click
import pytest

from tests.support.environment import ROOT
from tests.support.monitoring import METRIC, METRICS_PAGE, Alert, Query, alerts, documented, queries, targets
from workers.cli import mandor

RUNBOOKS = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
LIST = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
HEALTH_PAGE = ROOT / "docs" / "health.md"  # the values of the label `check`
TARGET_LABELS = {"job", "instance", "role"}
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
WRONG_CAUSES = ("the queue", "thread safety", "the tracing")


def labels_of(expr: str) -> set[str]:
    """Labels that the expression's metrics have."""
    return TARGET_LABELS.union(*(documented().get(name, ()) for name, _ in METRIC.findall(expr)))


def faults(expr: str) -> list[str]:
    """What the expression names and the page does not have."""
    page = METRICS_PAGE.read_text(encoding="utf-8") + HEALTH_PAGE.read_text(encoding="utf-8")
    found = [name for name, _ in METRIC.findall(expr) if name not in documented()]
    for name, matchers in METRIC.findall(expr):
        for label, value in MATCHER.findall(matchers):
            found += [f"{name}: {label}"] if label not in documented().get(name, set()) | TARGET_LABELS else []
            found += [f"{name}: {value}"] if label not in TARGET_LABELS and f"`{value}`" not in page else []
    by = re.findall(r"\bby\s*\(([^)]*)\)", expr)
    grouped = {label.strip() for labels in by for label in labels.split(",")}
    return found + sorted(grouped - labels_of(expr))


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert.name)
def test_rules_speak_of_metrics_that_there_are(alert: Alert) -> None:
    assert METRIC.search(alert.expr) or alert.expr.startswith("up{")
    assert faults(alert.expr) == []


@pytest.mark.parametrize(
    "query", [query for query in queries() if "ALERTS" not in query.expr], ids=lambda query: query.panel
)
def test_panels_speak_of_metrics_that_there_are(query: Query) -> None:
    assert METRIC.search(query.expr) or "up{" in query.expr
    assert faults(query.expr) == []
    assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= labels_of(query.expr)


def test_what_is_not_there_is_found() -> None:
    assert faults("sum by (kid) (mandor_dead_letters{sort='x'})") == ["kid"]
    assert faults('mandor_dead_letter{kind="step"}') == ["mandor_dead_letter", "mandor_dead_letter: kind"]
    assert faults('mandor_dead_letters{kind="stp"}') == ["mandor_dead_letters: stp"]


def test_what_must_always_be_zero_has_an_alert() -> None:
    rows = re.findall(r"^\| `(\w+)` .*\*\*0, always\*\* \|$", METRICS_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 4
    watched = " ".join(alert.expr for alert in alerts())
    assert [name for name in rows if name not in watched] == []


def test_prometheus_asks_the_documented_ports() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| `MANDOR_\w+_PORT`, (\d+) \|", METRICS_PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {role: int(port) for role, port in rows} == targets()


def test_no_label_of_a_target_hides_one_of_a_metric() -> None:
    assert {name: labels & TARGET_LABELS for name, labels in documented().items() if labels & TARGET_LABELS} == {}


def test_every_alert_has_a_page_and_every_page_is_of_alerts() -> None:
    titles = {
        path: path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").split(", ") for path in RUNBOOKS
    }
    assert {(alert.name, alert.page) for alert in alerts()} == {
        (name, str(path.relative_to(ROOT))) for path, names in titles.items() for name in names
    }


def test_the_list_has_every_alert_with_its_page() -> None:
    listed = re.findall(r"^\| \[(\w+)\]\((runbooks/\w+\.md)\) \|", LIST, re.MULTILINE)
    assert sorted((name, f"docs/{page}") for name, page in listed) == sorted((one.name, one.page) for one in alerts())


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_pages_tell_what_it_means_where_to_look_and_what_to_do(page: Path) -> None:
    sections = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == ["What it means", "What to look at", "What to do"]


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_pages_speak_of_metrics_and_commands_that_there_are(page: Path) -> None:
    quoted = re.findall(r"`([^`]+)`", page.read_text(encoding="utf-8"))
    wrong = [fault for text in quoted for fault in faults(text)]
    assert wrong == []
    for text in quoted:
        if text.startswith("mandor "):
            understood(shlex.split(text)[1:])


def test_the_page_on_crossed_results_names_what_it_is_not() -> None:
    text = (ROOT / "docs" / "runbooks" / "ResultsCrossed.md").read_text(encoding="utf-8")
    told = text.split("causes that are wrong")[1].split("## What to do")[0].lower()
    assert [cause for cause in WRONG_CAUSES if f"**{cause}" not in told and f"{cause}.**" not in told] == []


def understood(words: list[str]) -> None:
    """Raises click's UsageError unless the command line takes these words."""
    command: click.Command = mandor
    context = click.Context(mandor)
    while isinstance(command, click.Group) and words:
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
    command.make_context(command.name, list(words))
