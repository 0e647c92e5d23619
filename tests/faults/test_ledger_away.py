"""The ledger is away, and comes back: nothing is accepted that would not be remembered, and nothing is lost."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from orchestrator import dispatch
from orchestrator.errors import LedgerUnavailable
from schemas.ids import RunRef, session_key
from tests.support.invariants import assert_holds
from tests.support.servers import running_server
from tests.support.strangers import ARGS, put
from tests.support.system import SWEEP_S, System, plan_text, running_system, step
from tests.support.waiting import eventually

BACK_S = 30  # handed back for a few seconds each time; then a step or two


@dataclass(frozen=True)
class Remote:
    """A system whose ledger lies in a folder that can be taken away."""

    system: System
    folder: Path

    def take_away(self) -> None:
        self.folder.rename(self.folder.with_suffix(".away"))

    def put_back(self) -> None:
        self.folder.with_suffix(".away").rename(self.folder)

    def status(self, run_id: str, step_id: str) -> tuple[str, int]:
        found = self.system.installed.store.views.step(RunRef(run_id, session_key(None)), step_id)
        return (found.status, found.attempt) if found else ("", 0)


@pytest.fixture
def world(server_kind: str, tmp_path: Path) -> Iterator[Remote]:
    folder = tmp_path / "remote"
    folder.mkdir()
    url = f"sqlite:///{folder / 'ledger.db'}"
    with (
        running_server(tmp_path / "server", server_kind) as server,
        running_system(server.url, tmp_path, ledger_url=url) as made,
        made.installed.in_force(),
    ):
        made.start_control()
        made.start_steps(concurrency=2)
        yield Remote(made, folder)


def test_what_needs_the_ledger_waits_for_it_and_the_rest_goes_on(world: Remote) -> None:
    system = world.system
    gate = world.folder.parent / "gate"
    actions = {"pure": "test.echo", "idempotent": "test.note", "keyed": "test.order", "once": "test.post"}
    held = step("test.note", "held", value="x", gate=str(gate))
    made = [step(action, name, ["held"], value="x") for name, action in {**actions, "booked": "test.book"}.items()]
    run_id = system.submit(held, *made)
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    world.take_away()
    gate.touch()
    eventually(lambda: world.status(run_id, "pure") == world.status(run_id, "idempotent") == ("completed", 1))
    eventually(lambda: {world.status(run_id, name) for name in ("keyed", "once", "booked")} == {("backoff", 0)})
    plan = plan_text(step("test.echo", value="x"))
    refused = dispatch.send_submission(system.installed.app, {"plan": plan, "context": {}}, str(uuid4()))
    with pytest.raises(LedgerUnavailable, match="folder"):
        dispatch.await_answer(refused, 30)
    world.put_back()
    view = system.wait(run_id, timeout_s=BACK_S)
    assert (view.status, {one.attempt for one in view.steps}) == ("succeeded", {1})
    assert [row.run_id for row in system.installed.ledger.listed(10)] == [run_id]
    eventually(lambda: not any(system.installed.store.stream.length(shard) for shard in range(16)))
    assert_holds(system, view, "succeeded")


def test_what_happened_meanwhile_is_told_afterwards(world: Remote) -> None:
    system = world.system
    gate = world.folder.parent / "gate"
    made = (step("test.note", "held", value="x", gate=str(gate)), step("test.echo", "after", value="y"))
    run_id = system.submit(*made)
    eventually(lambda: system.effects(run_id=run_id, what="began"))
    world.take_away()
    gate.touch()
    ref = RunRef(run_id, session_key(None))
    eventually(lambda: (state := system.installed.store.views.run(ref)) and state.status == "succeeded")
    assert system.installed.store.stream.length(system.installed.store.keys.shard_of(run_id)) > 0
    world.put_back()
    eventually(lambda: system.view(run_id).ended_at, timeout_s=10 + 10 * SWEEP_S, what="its end in the ledger")
    eventually(lambda: [one.event for one in history(system, run_id)][-1:] == ["run.succeeded"])
    assert [one.version for one in history(system, run_id)] == list(range(1, len(history(system, run_id)) + 1))


def history(system: System, run_id: str) -> list:  # type: ignore[type-arg]
    return system.installed.ledger.history.events(run_id)


def test_what_is_no_message_of_ours_waits_for_its_letter(world: Remote) -> None:
    """Where there is no ledger there is no letter, and the message would be nowhere."""
    ours = world.system.installed
    settle = b'[[], {"sesame": 1}, {}]'
    strangers = ((b'{"cut":', "orchestrator.submit"), (ARGS, "nobody.knows.this"), (settle, "orchestrator.settle"))
    world.take_away()
    for body, task in strangers:
        put(ours, body, task)
    refused = "ledger_unavailable"
    eventually(lambda: sum(refused in line for line in world.system.processes.lines("control")) > len(strangers))
    world.put_back()
    eventually(lambda: len(ours.ledger.letters(100)) == len(strangers), timeout_s=BACK_S, what="a letter about each")
    assert all(letter.kind == "message" for letter in ours.ledger.letters(100))
