"""By when a run has ended at the latest: each part of the sum counts, and only where it can take time."""

from typing import Any

import pytest

from orchestrator.bound import ended_by
from orchestrator.settings import Settings
from orchestrator.store.new import NewStep
from tests.support.servers import Server
from tests.support.stores import LEASE, Scene, clocked_store, new_step, ref_of

SETTINGS = Settings(lease_s=LEASE / 1000, sweep_s=2, dispatch_deadline_s=600)
GRACE, SWEEPS, PROBE, UNDO = 10_000, 4_000, 600_000, 2 * (60_000 + 10_000 + 60_000)


def after_deadline(server: Server, namespace: str, on_failure: str, *steps: NewStep) -> int:
    """Milliseconds from the run's deadline to its latest end."""
    store, clock = clocked_store(server.url, namespace)
    scene = Scene(store, clock, ref_of("run")).accept(on_failure=on_failure, deadline_ms=1000).admit(*steps)
    run, planned = store.views.run(scene.ref), store.views.steps(scene.ref)
    assert run is not None
    bound = ended_by(run, planned, SETTINGS) - run.deadline_at
    store.close()
    return bound


@pytest.mark.parametrize(
    ("on_failure", "kinds", "more"),
    [
        ("stop", [{}], 0),
        ("stop", [{"lease_ms": LEASE + 1000}, {}], 1000),
        ("stop", [{"effect": "keyed"}], 0),
        ("stop", [{"effect": "once", "probe": True}, {"effect": "keyed", "probe": True}], GRACE + PROBE),
        ("compensate", [{}], 0),
        ("compensate", [{"effect": "keyed"}], UNDO),
        ("compensate", [{"effect": "keyed"}, {"effect": "keyed"}], UNDO),
        ("compensate", [{"effect": "once", "probe": True}], GRACE + PROBE + UNDO),
    ],
)
def test_every_part_counts_where_it_can_take_time(
    redis_server: Server, namespace: str, on_failure: str, kinds: list[dict[str, Any]], more: int
) -> None:
    steps = [new_step(f"s{i}", i, **kind) for i, kind in enumerate(kinds)]
    assert after_deadline(redis_server, namespace, on_failure, *steps) == GRACE + LEASE + SWEEPS + more


def test_undos_that_wait_for_each_other_add_up(redis_server: Server, namespace: str) -> None:
    steps = [new_step("a", 0, effect="keyed"), new_step("b", 1, "a", effect="keyed"), new_step("c", 2, effect="once")]
    assert after_deadline(redis_server, namespace, "compensate", *steps) == GRACE + LEASE + SWEEPS + 2 * UNDO
