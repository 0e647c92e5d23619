"""`mandor faults run` as a user calls it: what it finds, what it says, what it leaves behind."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from examples.orders import carrier
from tests.support.system import plan_text, step
from tests.support.throwaway import ThrowAway
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(180)


class Kit(ThrowAway):
    """Calls of the kit, one after the other."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder

    def run(self, *arguments: str, **env: str) -> None:
        self.start("workers.cli", "faults", "run", *arguments, **env)

    def call(self, *arguments: str, timeout_s: float = 170.0, **env: str) -> tuple[int, dict[str, Any]]:
        """Exit code and JSON, which is the last line."""
        self.run(*arguments, "--json", **env)
        code = self.process.wait(timeout_s)
        return code, json.loads(self.screen.splitlines()[-1])

    def assert_nothing_is_left(self) -> None:
        """No process that has its home there, and no home."""
        eventually(lambda: self.left() == {}, what="the end of all processes")
        assert list(self.homes.iterdir()) == []


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    made = Kit(tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_one_scenario(kit: Kit) -> None:
    code, told = kit.call("--scenario", "S2", "--seed", "7", "--junit", str(kit.folder / "faults.xml"))
    assert code == 0, told
    said = told["certificate"]
    assert (said["verdict"], said["duplicates"], said["losses"], said["stuck"], said["other"]) == ("passed", 0, 0, 0, 0)
    assert said["runs"] == {"succeeded": 9}
    assert said["faults"] == said["recovery_ms"]["count"] == 6
    assert said["effects"]["transactional"] == said["effects"]["once"] == 9
    suite = ET.parse(kit.folder / "faults.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "0")
    kit.assert_nothing_is_left()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_all_scenarios(kit: Kit) -> None:
    code, told = kit.call(timeout_s=590)
    assert code == 0, told
    said = told["certificate"]
    assert (said["scenarios"], said["duplicates"], said["losses"], said["stuck"], said["other"]) == (12, 0, 0, 0, 0)
    assert all(one["faults"] for one in told["scenarios"])
    nuisances = {"S4", "S8", "S10", "S11"}
    assert {one["name"] for one in told["scenarios"] if not one["recoveries"]} == nuisances
    kit.assert_nothing_is_left()


@pytest.mark.full
def test_a_users_own_planner(kit: Kit) -> None:
    order = {
        "id": "order-1",
        "customer": "A",
        "city": "B",
        "account": "6f7a4d0e-3c52-4b7e-9d38-51c0a9e7f001",
        "lines": [{"sku": "kettle-1l", "name": "Kettle", "quantity": 1, "unit_cents": 100}],
    }
    modules = "examples.orders.actions,examples.orders.planner"
    driven = ("--actions", modules, "--planner", "orders.fulfil", "--context", json.dumps(order))
    audit = ("--audit", "examples.orders.carrier:complaints")
    code, told = kit.call("--scenario", "S1", "--seed", "4", *driven, *audit, ORDERS_HOME=str(kit.folder))
    assert code == 0, told
    assert carrier.audit(kit.folder / "carrier.db").repeated == 2  # of three killed there, before their rows landed
    assert told["driven"] == modules
    assert told["certificate"]["effects"]["keyed"] >= 3


@pytest.mark.full
def test_guards_that_do_not_hold_are_found(kit: Kit) -> None:
    """An open row lets everybody in, and undoing is said to be done without having been."""
    modules = "workers.faults.example,tests.support.sabotage"
    driven = ("--actions", modules, "--planner", "faults.order", "--context", json.dumps({"order": "x"}))
    code, told = kit.call("--scenario", "S1", "--seed", "7", *driven)
    assert code == 1
    found = {(one["invariant"], one["sort"]) for one in told["scenarios"][0]["violations"]}
    assert {("I6", "duplicate"), ("I10", "loss")} <= found


@pytest.mark.full
@pytest.mark.parametrize(
    ("workers", "scenario", "seed", "found"),
    [("credulous", "S5", "12113", ("I6", "duplicate")), ("boastful", "S3", "17826", ("I10", "loss"))],
)
def test_an_effect_that_happens_twice_or_never_is_found(
    kit: Kit, workers: str, scenario: str, seed: str, found: tuple[str, str]
) -> None:
    """Nothing but the log of effects can say so, and of each of them: in their runs' histories nothing is amiss."""
    plan = kit.folder / "plan.json"
    plan.write_text(plan_text(step("faults.send", "send", order="x")))
    driven = ("--actions", f"workers.faults.example,tests.support.{workers}", "--plan", str(plan))
    code, told = kit.call("--scenario", scenario, "--seed", seed, *driven)
    assert code == 1
    said = told["certificate"]
    assert {(one["invariant"], one["sort"]) for one in told["scenarios"][0]["violations"]} == {found}
    assert said["duplicates"] + said["losses"] >= abs(said["effects"]["once"] - sum(said["runs"].values())) > 0


@pytest.mark.full
def test_a_probe_that_lies_is_found_and_what_an_audit_finds_is_a_violation(kit: Kit) -> None:
    plan = kit.folder / "plan.json"
    plan.write_text(plan_text(step("test.lie", "lie", to="you")))
    driven = ("--actions", "tests.support.lying", "--plan", str(plan), "--audit", "tests.support.lying:complaints")
    code, told = kit.call("--scenario", "S1", "--seed", "1", *driven)
    assert code == 1
    assert told["certificate"]["verdict"] == "failed"
    assert told["certificate"]["duplicates"] > 0
    violations = told["scenarios"][0]["violations"]
    assert {one["invariant"] for one in violations} == {"I6", "audit"}
    assert [one["text"] for one in violations if one["invariant"] == "audit"] == ["4 runs"]
    kit.assert_nothing_is_left()


@pytest.mark.full
def test_what_a_users_own_code_does_wrong_is_its_scenarios_error(kit: Kit) -> None:
    moody = (
        "--actions",
        "tests.support.awkward",
        "--planner",
        "awkward.moody",
        "--audit",
        "tests.support.awkward:closed",
    )
    code, told = kit.call("--scenario", "S9", "--seed", "1", *moody, "--junit", str(kit.folder / "faults.xml"))
    assert (code, told["seed"], told["certificate"]["verdict"]) == (1, 1, "failed")
    error = told["scenarios"][0]["error"]
    assert "other_steps: run" in error
    assert "RuntimeError: the books are closed" in error
    assert "hello" in kit.screen  # on standard error: where the document is, nothing else may be
    suite = ET.parse(kit.folder / "faults.xml").getroot()
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    kit.assert_nothing_is_left()


@pytest.mark.full
def test_an_audit_that_answers_nothing_is_told(kit: Kit) -> None:
    driven = ("--actions", "workers.faults.example,tests.support.awkward", "--planner", "faults.order")
    context = ("--context", json.dumps({"order": "x"}), "--audit", "tests.support.awkward:silent")
    code, told = kit.call("--scenario", "S10", "--seed", "1", *driven, *context)
    assert (code, told["certificate"]["verdict"]) == (1, "failed")
    assert told["scenarios"][0]["error"].startswith("audit_failed: --audit answered None")


@pytest.mark.full
def test_messages_that_were_not_given_back_show_nothing(kit: Kit) -> None:
    modules = "workers.faults.example,tests.support.harmless"
    driven = ("--actions", modules, "--planner", "faults.order", "--context", json.dumps({"order": "x"}))
    code, told = kit.call("--scenario", "S4", "--seed", "9", *driven)
    assert (code, told["certificate"]["faults"]) == (1, 0)
    violations = told["scenarios"][0]["violations"]
    assert len(violations) == 2
    assert all("came again" in one["text"] for one in violations)


@pytest.mark.full
def test_what_a_plan_gives_no_occasion_for_is_skipped(kit: Kit) -> None:
    plan = kit.folder / "plan.json"
    plan.write_text(plan_text(step("faults.price", "price", order="x")))
    code, told = kit.call("--scenario", "S10,S2", "--seed", "3", "--plan", str(plan))
    assert (code, told["certificate"]["verdict"], told["certificate"]["skipped"]) == (0, "passed", ["S10"])
    code, told = kit.call("--scenario", "S10", "--seed", "3", "--plan", str(plan))
    assert (code, told["certificate"]["verdict"]) == (1, "not applicable")


@pytest.mark.full
def test_what_does_not_work_without_faults_is_told_first(kit: Kit) -> None:
    plan = kit.folder / "plan.json"
    plan.write_text(plan_text(step("test.refuse", "refuse", to="you")))
    code, told = kit.call("--actions", "tests.support.lying", "--plan", str(plan))
    assert (code, told["error"]["kind"]) == (1, "rehearsal_failed")
    assert told["seed"] >= 0
    assert "nobody lives there" in told["error"]["message"]
    kit.assert_nothing_is_left()


@pytest.mark.full
def test_a_module_that_cannot_be_imported_is_named(kit: Kit) -> None:
    for wrong in (("--actions", "no_such_shop", "--planner", "a"), ("--audit", "no_such_shop:books")):
        code, told = kit.call(*wrong)
        assert (code, told["error"]["kind"]) == (2, "config")
        assert "no_such_shop" in told["error"]["message"]
    kit.assert_nothing_is_left()


@pytest.mark.full
@pytest.mark.parametrize("moment", ["starts", "S1"])
def test_ctrl_c_leaves_nothing_behind(kit: Kit, moment: str) -> None:
    kit.run("--scenario", "S1,S7", "--seed", "7")
    if moment == "starts":
        eventually(lambda: any(kit.homes.glob("*/logs/*.log")), timeout_s=60, what="the first process")
    else:
        eventually(lambda: "S1   ok" in kit.screen, timeout_s=120, what="the first scenario")
    kit.process.send_signal(signal.SIGINT)
    kit.process.send_signal(signal.SIGINT)
    assert kit.process.wait(60) == 130
    assert "Traceback" not in kit.screen
    assert "interrupted" in kit.screen
    kit.assert_nothing_is_left()


@pytest.mark.full
def test_a_kit_that_is_killed_leaves_no_process(kit: Kit) -> None:
    kit.run("--scenario", "S7", "--seed", "7")
    eventually(lambda: any(kit.homes.glob("*/effects.jsonl")), timeout_s=60, what="the rehearsal")
    assert kit.left() != {}
    kit.process.send_signal(signal.SIGKILL)
    kit.process.wait(60)
    eventually(lambda: kit.left() == {}, timeout_s=30, what="the end of all processes")
