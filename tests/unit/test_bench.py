"""`./dev bench`: what it prints, which way its ratios point, and what it keeps away from."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.contests import IN_ARENA, QUICK
from benchmarks.figures import Figure, Result, as_json, as_text
from benchmarks.sandbox import Cost, figures, sandbox
from benchmarks.site import environment, forget_foreign
from benchmarks.tally import VARIABLE, Tally, add
from tests.support.sandboxes import ladder


def arena(*seconds: list[float]) -> Any:
    """One in which the turns took so long."""
    mandor = SimpleNamespace(following=SimpleNamespace(left=[QUICK.followed]))
    return SimpleNamespace(scale=QUICK, rounds=lambda *_: seconds, mandor=mandor)


def held(name: str, *seconds: list[float]) -> dict[str, Any]:
    """What the contest prints as JSON."""
    found: dict[str, Any] = as_json([IN_ARENA[name](arena(*seconds))], quick=True)[name]
    return found


def test_a_fan_out_twice_as_fast_is_two() -> None:
    found = held("fanout", [2.0, 4.0, 3.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    assert (found["ratio_to_bare"], found["ratio_to_bare_spread"]) == (3.0, [2.0, 4.0])
    assert found["ratio_to_batched"] == 1.0
    assert found["bare_step_ms"] == 6.0
    assert found["rounds"] == 3


def test_a_hop_twice_as_slow_is_two() -> None:
    assert held("sequence", [1.0], [2.0])["ratio_to_bare"] == 2.0


def test_runs_compare_throughput() -> None:
    assert held("runs", [1.0], [4.0])["ratio_to_bare"] == 0.25


def test_a_ledger_that_costs_nothing_is_one() -> None:
    found = held("ledger", [4.0, 5.0, 6.0], [5.0, 5.0, 12.0])
    assert (found["ratio"], found["ratio_spread"], found["left"]) == (0.8, [0.5, 1.0], 1.0)


def test_a_step_that_costs_the_same_has_not_grown() -> None:
    assert held("growth", [1.0], [QUICK.many / QUICK.few])["ratio"] == 1.0


def test_a_sandbox_that_takes_three_times_as_long_is_three() -> None:
    bare, fenced = Cost(0.01, 0.002), Cost(0.03, 0.02)
    found = Result("sandbox", "", figures([{"bare": bare, "namespaces": fenced}])).fields()
    assert (found["namespaces_ratio"], found["namespaces_ms"], found["namespaces_cpu_ms"]) == (3.0, 30.0, 20.0)
    assert (found["bare_ms"], found["bare_cpu_ms"]) == (10.0, 2.0)
    assert "bare_ratio" not in found


def test_every_rung_that_works_here_is_measured() -> None:
    found = sandbox(rounds=1, commands=1).fields()
    assert {name for name in found if name.endswith("_ratio")} == {f"{rung}_ratio" for rung in ladder().working}
    assert all(found[f"{rung}_ms"] > 0 for rung in ladder().working)


def test_for_people_each_figure_is_a_line_with_its_spread() -> None:
    text = "\n".join(as_text([Result("fanout", "a fan-out", [Figure("ratio_to_bare", "", [0.5, 0.7, 0.6])])]))
    assert "fanout.ratio_to_bare       0.600     (0.500 to 0.700)" in text


def test_nothing_of_the_callers_shell_gets_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MANDOR_REDIS_URL", "MANDOR_LEASE_S", "CELERY_BROKER_URL", "REDIS_URL", "APP"):
        monkeypatch.setenv(name, "redis://somebody-elses:6379/0")
    given = environment(tmp_path, "redis://:secret@127.0.0.1:1234/0")
    assert not [name for name, value in given.items() if "somebody-elses" in value]
    assert given["BENCH_BROKER"] == "redis://:secret@127.0.0.1:1234/1"
    forget_foreign()
    assert "CELERY_BROKER_URL" not in os.environ


def test_what_is_done_is_counted_from_a_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "tally"))
    tally = Tally(tmp_path / "tally")
    add()
    done = tally.marker()
    add()
    add()
    assert (done(), tally.count) == (2, 3)
