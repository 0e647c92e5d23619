"""One step, interrupted at each place of an attempt, for each effect class where that differs, in four ways.

The table says how the step ends, how many attempts were counted, and how often its action acted. What interrupts is
real: SIGKILL to the child, SIGKILL to the whole worker, SIGSTOP until all is over, SIGTERM to a worker whose children
do not listen. Interruptions that are not about a place in an attempt are elsewhere; docs/faults.md says where.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.held import ACTED, CLAIMED, COMMITTED, LANDED, OPENED, POPPED, REFUSED
from tests.support.servers import running_server
from tests.support.system import LEASE_S, SWEEP_S, System, running_system, step
from tests.support.waiting import eventually

CHECK_S = 3.0
# what wakes up has so long before it is killed; and a worker that is asked to stop waits until that is done
AWAKE_S, TERM_S = 5.0, 8.0
# what is promised is half of it: these machines are noisy
BOUND_S = 2 * (LEASE_S + 2 * SWEEP_S)
ACTIONS = "tests.support.business,tests.support.held"

PURE, IDEMPOTENT, KEYED, TRANSACTIONAL = "test.look", "test.note", "test.order", "test.book"
ONCE, ONCE_WITH_PROBE, ONCE_TO_UNDO = "test.send", "test.post", "test.wire"
ROWED = (IDEMPOTENT, KEYED, ONCE, TRANSACTIONAL)

Case = tuple[str, str]  # place, action
End = tuple[str, int, int]  # the step's status, its attempts, how often it acted

ENDS_OF_CLAIMS = ("step.claimed", "step.expired")  # a pure step is claimed over

DONE, AGAIN, IN_DOUBT = ("completed", 1, 1), ("completed", 2, 1), ("in_doubt", 1, 0)

# what a killed child leaves: its parent proves its death
ENDS: dict[Case, End] = {
    (POPPED, ONCE): DONE,
    **{(CLAIMED, action): AGAIN for action in (PURE, *ROWED)},
    (OPENED, KEYED): AGAIN,
    (OPENED, ONCE): IN_DOUBT,
    (OPENED, ONCE_WITH_PROBE): AGAIN,
    (ACTED, IDEMPOTENT): ("completed", 2, 2),
    (ACTED, KEYED): ("completed", 2, 2),  # under one idempotency key
    (ACTED, ONCE): ("in_doubt", 1, 1),
    (ACTED, ONCE_WITH_PROBE): DONE,
    (LANDED, PURE): ("completed", 2, 2),
    **{(LANDED, action): DONE for action in ROWED},
    (COMMITTED, ONCE): DONE,
}
# of a worker that is gone nobody knows that it is dead, so a probe's "absent" is not believed
UNPROVEN: dict[Case, End] = {**ENDS, (OPENED, ONCE_WITH_PROBE): IN_DOUBT}
# what woke up acts once more where no guard is left in its way; none of it is reported
WOKEN: dict[Case, End] = {
    **UNPROVEN,
    (CLAIMED, PURE): ("completed", 2, 2),
    (CLAIMED, IDEMPOTENT): ("completed", 2, 2),
    (OPENED, KEYED): ("completed", 2, 2),
    (OPENED, ONCE): ("in_doubt", 1, 1),
    (OPENED, ONCE_WITH_PROBE): ("in_doubt", 1, 1),
}


@pytest.fixture(scope="module")
def running(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Every role but step workers."""
    folder = tmp_path_factory.mktemp("interrupted")
    with running_server(folder / "server", server_kind) as server, new_system(server.url, folder) as made:
        made.start_control()
        yield made


def new_system(url: str, folder: Path) -> AbstractContextManager[System]:
    given = {"dispatch_check_s": CHECK_S, "term_grace_s": TERM_S, "stop_grace_s": AWAKE_S}
    return running_system(url, folder, actions=ACTIONS, **given)


@pytest.fixture
def system(running: System) -> Iterator[System]:
    """The same, with nothing of an earlier test's."""
    running.processes.forget_lines()
    for order in running.effect_log.parent.glob("go.*"):
        order.unlink()
    with running.installed.in_force():
        yield running
        running.end_steps()


@pytest.fixture
def held(system: System) -> dict[Case, str]:
    """Runs that go on with a step `then`, and that nobody undoes."""
    return hold(system, ENDS, step("test.echo", "then", value="x"), {"on_failure": "stop"})


def hold(system: System, cases: Iterable[Case], then: dict[str, Any], policy: dict[str, Any]) -> dict[Case, str]:
    """A run for each case, its first step held at its place in the worker `first`. Answers their ids."""
    cases = list(cases)
    system.start_steps("first", concurrency=len(cases))
    runs = {
        (place, action): system.submit(step(action, place, value=place), then, policy=policy) for place, action in cases
    }
    eventually(lambda: held_lines(system, runs).keys() == set(runs.values()), timeout_s=60, what="all steps held")
    return runs


def wake(system: System, place: str) -> None:
    """What is held at this place may go on."""
    system.effect_log.with_name(f"go.{place}").touch()


def held_lines(system: System, runs: dict[Case, str]) -> dict[str, dict[str, Any]]:
    lines = system.effects(what="held")
    return {line["run_id"]: line for line in lines if line["run_id"] in runs.values()}


def kill_children(system: System, runs: dict[Case, str]) -> None:
    for line in held_lines(system, runs).values():
        os.kill(line["pid"], signal.SIGKILL)


def kill_worker(system: System, _: dict[Case, str]) -> None:
    system.processes.kill("first")


def stop_worker(system: System, _: dict[Case, str]) -> None:
    system.processes.child("first").signal(signal.SIGTERM)


HELD_CLAIMS = {(place, action) for place, action in ENDS if place not in (POPPED, COMMITTED)}
# how it is interrupted, how that ends, which claims the parent has ended, and within which time they have ended
INTERRUPTIONS: dict[str, tuple[Callable[[System, dict[Case, str]], None], dict[Case, End], set[Case], float]] = {
    "a killed child": (kill_children, ENDS, HELD_CLAIMS, BOUND_S),
    "a killed worker": (kill_worker, UNPROVEN, set(), BOUND_S),
    "a worker that is asked to stop": (stop_worker, ENDS, HELD_CLAIMS, BOUND_S + TERM_S),
}


@pytest.mark.parametrize("name", INTERRUPTIONS)
def test_an_attempt_that_is_interrupted(system: System, held: dict[Case, str], name: str) -> None:
    interrupt, expected, by_parent, bound_s = INTERRUPTIONS[name]
    system.start_steps("second", concurrency=4)
    at_ms = system.installed.store.now_ms()
    interrupt(system, held)
    wait_for_all(system, held)
    assert ends(system, held) == expected
    assert slowest(system, held, at_ms) < bound_s * 1000
    assert with_event(system, held, "step.claim_ended") == by_parent
    assert_told_as_it_was(system, held)


def with_event(system: System, runs: dict[Case, str], name: str) -> set[Case]:
    """The cases to which this happened."""
    return {case for case, run_id in runs.items() if name in [one.event for one in system.events(run_id)]}


@pytest.mark.full
def test_an_attempt_that_is_frozen_and_wakes_up_when_all_is_over(system: System, held: dict[Case, str]) -> None:
    system.start_steps("second", concurrency=4)
    at_ms = system.installed.store.now_ms()
    system.processes.freeze("first")
    wait_for_all(system, held)
    assert ends(system, held) == UNPROVEN
    assert slowest(system, held, at_ms) < BOUND_S * 1000
    before = {case: system.view(run_id) for case, run_id in held.items()}
    for place, _ in held:
        wake(system, place)
    system.processes.thaw("first")
    becomes(lambda: ends(system, held), WOKEN)
    idle_again(system)
    assert ends(system, held) == WOKEN
    after = {case: system.view(run_id) for case, run_id in held.items()}
    assert {case: view.version for case, view in after.items()} == {case: view.version for case, view in before.items()}
    assert_told_as_it_was(system, held)


def becomes(look: Callable[[], Any], expected: Any) -> None:
    """What is seen is what was expected, sooner or later. What it is instead, if not, says more than the time."""
    with suppress(AssertionError):
        eventually(lambda: look() == expected, timeout_s=60)
    assert look() == expected


def idle_again(system: System) -> None:
    """Return when nothing of what was frozen is under way any more."""
    worker = system.installed.app.control.inspect(pattern="first@*", matcher="glob", limit=1)
    eventually(lambda: not any((worker.active() or {"first": ["no answer"]}).values()), what="an idle worker")


def slowest(system: System, runs: dict[Case, str], at_ms: int) -> int:
    """Milliseconds from the interruption until the last lost claim was ended. A lost message is missed later."""
    claimed = [run_id for case, run_id in runs.items() if case in HELD_CLAIMS]
    return max(ended(system, run_id, at_ms) for run_id in claimed) - at_ms


def ended(system: System, run_id: str, at_ms: int) -> int:
    """When the claim that was interrupted had ended, and the step could go on."""
    return min(int(one.at) for one in system.events(run_id) if one.at >= at_ms and one.event in ENDS_OF_CLAIMS)


def wait_for_all(system: System, runs: dict[Case, str]) -> None:
    left = dict(runs)

    def all_over() -> bool:
        for case in [case for case, run_id in left.items() if system.has_ended(run_id)]:
            del left[case]
        return not left

    try:
        eventually(all_over, timeout_s=60, what="the end of what was interrupted")
    except AssertionError as late:
        told = {case: [event.event for event in system.events(run_id)] for case, run_id in left.items()}
        raise AssertionError(f"{late}\n{told}") from None


def ends(system: System, runs: dict[Case, str]) -> dict[Case, End]:
    return {case: end(system, case[0], run_id) for case, run_id in runs.items()}


def end(system: System, place: str, run_id: str) -> End:
    first = system.view(run_id).steps[0]
    return first.status, first.attempt, len(system.effects(what="noted", run_id=run_id, step_id=place))


def assert_told_as_it_was(system: System, runs: dict[Case, str]) -> None:
    """A run goes on exactly if its first step is completed, and that is committed once; a doubt leaves a letter."""
    for (place, action), run_id in runs.items():
        view = system.view(run_id)
        completed = view.steps[0].status == "completed"
        assert (view.status, view.steps[1].status) == (
            ("succeeded", "completed") if completed else ("failed", "skipped")
        ), (place, action)
        commits = [one.fields["step_id"] for one in system.events(run_id) if one.fields.get("outcome") == "committed"]
        assert sorted(commits) == ([place, "then"] if completed else []), (place, action)
        told = [letter.reason for letter in view.dead_letters if letter.reason != "late_effect"]
        assert told == ([] if completed else ["in_doubt"]), (place, action)


# ---- woken when its run is over, and all that it did was undone. One attempt: nobody else does the step's work.

BAD = step("test.flaky", "then", failures=0, for_good=True)
ONE_TRY = {"limits": {"attempts": 1}}

# run's status; how often it acted, was undone, was to be undone and was not there; whether it came late; letters
Account = tuple[str, int, int, int, bool, list[str]]

NO_UNDO = f"no compensation declared for {ONCE}"
NEVER_BEGAN: Account = ("failed", 0, 0, 0, False, ["retry_exhausted"])
COMPLETED: Account = ("compensated", 1, 1, 0, False, [])
ZOMBIES: dict[Case, Account] = {
    (CLAIMED, PURE): ("failed", 1, 0, 0, False, ["retry_exhausted"]),  # nothing of it is outside
    (CLAIMED, IDEMPOTENT): ("compensated", 1, 1, 1, True, ["retry_exhausted"]),
    (CLAIMED, KEYED): NEVER_BEGAN,
    (CLAIMED, ONCE_WITH_PROBE): NEVER_BEGAN,
    (CLAIMED, TRANSACTIONAL): NEVER_BEGAN,
    (CLAIMED, ONCE): NEVER_BEGAN,
    (CLAIMED, ONCE_TO_UNDO): NEVER_BEGAN,
    (OPENED, KEYED): ("compensated", 1, 1, 1, True, ["late_effect", "retry_exhausted"]),
    (OPENED, ONCE_WITH_PROBE): ("compensated", 1, 1, 1, True, ["in_doubt", "late_effect"]),
    (ACTED, IDEMPOTENT): ("compensated", 1, 1, 1, True, ["retry_exhausted"]),
    (ACTED, KEYED): ("compensated", 1, 1, 1, True, ["late_effect", "retry_exhausted"]),
    (OPENED, ONCE_TO_UNDO): ("compensated", 1, 1, 1, True, ["in_doubt", "late_effect"]),
    (ACTED, ONCE_WITH_PROBE): COMPLETED,
    (ACTED, ONCE_TO_UNDO): ("compensated", 1, 1, 1, True, ["in_doubt", "late_effect"]),
    # nobody can take it back: it stands, and letters say so
    (OPENED, ONCE): ("compensation_failed", 1, 0, 0, True, ["in_doubt", "late_effect", NO_UNDO]),
    (ACTED, ONCE): ("compensation_failed", 1, 0, 0, True, ["in_doubt", "late_effect", NO_UNDO]),
    (LANDED, ONCE): ("compensation_failed", 1, 0, 0, False, [NO_UNDO]),
    **{(LANDED, action): COMPLETED for action in (IDEMPOTENT, KEYED, ONCE_WITH_PROBE, ONCE_TO_UNDO, TRANSACTIONAL)},
    (COMMITTED, KEYED): COMPLETED,
}


@pytest.mark.full
def test_every_effect_of_a_zombie_is_accounted_for(system: System) -> None:
    """It belongs to a completed step that was not undone (here there is none), or was undone, once; of what nobody can
    undo it is told."""
    runs = hold(system, ZOMBIES, BAD, ONE_TRY)
    system.processes.freeze("first")
    system.start_steps("second", concurrency=4)
    wait_for_all(system, runs)
    closed = {case: system.view(run_id) for case, run_id in runs.items()}
    for place, _ in runs:
        wake(system, place)
    system.processes.thaw("first")
    becomes(lambda: accounts(system, runs), ZOMBIES)
    idle_again(system)
    assert accounts(system, runs) == ZOMBIES
    for case, run_id in runs.items():
        view = system.view(run_id)
        assert (view.version, view.steps) == (closed[case].version, closed[case].steps), case


def accounts(system: System, runs: dict[Case, str]) -> dict[Case, Account]:
    return {case: account(system, case[0], run_id) for case, run_id in runs.items()}


def account(system: System, place: str, run_id: str) -> Account:
    log = system.effects(run_id=run_id, step_id=place)
    counted = ("noted", "undone", "found_nothing")
    acted, undone, in_vain = (sum(line["what"] == what for line in log) for what in counted)
    letters = sorted(letter.reason for letter in system.view(run_id).dead_letters)
    late = place in system.installed.ledger.late.refused(run_id)
    return system.view(run_id).status, acted, undone, in_vain, late, letters


@pytest.mark.full
def test_a_zombie_that_dies_before_it_can_tell_is_found_out(system: System) -> None:
    """Killed between its refused landing and the message that would have it undone: the ledger knows by then."""
    case = (f"{OPENED}-{REFUSED}", KEYED)
    runs = hold(system, [case], BAD, ONE_TRY)
    system.processes.freeze("first")
    system.start_steps("second", concurrency=1)
    wait_for_all(system, runs)
    wake(system, OPENED)
    system.processes.thaw("first")
    run_id = runs[case]
    refused = eventually(lambda: system.effects(what="held", run_id=run_id, value=REFUSED), what="a refused landing")
    os.kill(refused[0]["pid"], signal.SIGKILL)
    owed: Account = ("compensated", 1, 1, 1, True, ["late_effect", "retry_exhausted"])
    becomes(lambda: account(system, case[0], run_id), owed)
