"""What a run waits for, as its store tells it."""

import re

import pytest

from orchestrator import waits
from orchestrator.settings import Settings
from tests.support.servers import Server
from tests.support.stores import Scene, clocked_store, ref_of


@pytest.fixture
def scene(redis_server: Server, namespace: str) -> Scene:
    store, clock = clocked_store(redis_server.url, namespace)
    return Scene(store, clock, ref_of("waits"))


def waited_for(scene: Scene) -> waits.Wait:
    """The one thing that is waited for."""
    run = scene.store.views.run(scene.ref)
    assert run is not None
    (wait,) = waits.look(scene.store, scene.ref, run, Settings()).waits
    return wait


def test_an_end_that_the_ledger_does_not_know_says_how_far_the_ledger_lags(scene: Scene) -> None:
    scene.accept().store.runs.cancel(scene.ref, 1)
    wait, lag = waited_for(scene), r"; it is 2 transitions behind, the oldest from \d+ s ago"
    assert (wait.what, wait.mover) == ("ledger", "settle-runs")
    assert re.fullmatch(f"the run has ended as cancelled; the ledger is still to be told{lag}", wait.text)


def test_a_ledger_that_is_up_to_date_but_for_this_end_lags_behind_nothing(scene: Scene) -> None:
    scene.accept().store.runs.cancel(scene.ref, 1)
    stream, shard = scene.store.stream, scene.store.keys.shard_of(scene.ref.run_id)
    stream.read(shard, stream.last_id(shard), 1)
    assert waited_for(scene).text == "the run has ended as cancelled; the ledger is still to be told"
