"""A claim kept alive, and the reasons to let it go; the store is a function here, the clock is the real one."""

import threading
import time
from collections.abc import Iterator

import pytest

from orchestrator.errors import LedgerUnavailable, StoreMoved, StoreUnavailable
from orchestrator.store.replies import Lost, Renewed, StopNow
from workers import stopping
from workers.lease import Lease, Renewal, Terms
from workers.outcomes import AttemptStopped, LeaseLost, RunEnding, TimeUp, WorkerStopping

LONG = 600_000


def terms(*, lease_ms: int = LONG, limit_ms: int = LONG, stop_grace_ms: int = LONG) -> Terms:
    return Terms(7, lease_ms, limit_ms, stop_grace_ms, time.monotonic())


class Answers:
    """Renewals answered from a list, the last one for ever."""

    def __init__(self, *answers: Renewal | Exception) -> None:
        self.answers = answers
        self.times = 0
        self.asked = threading.Semaphore(0)

    def __call__(self) -> Renewal:
        answer = self.answers[min(self.times, len(self.answers) - 1)]
        self.times += 1
        self.asked.release()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait_for(self, times: int) -> None:
        for _ in range(times):
            assert self.asked.acquire(timeout=20)


def stopped(lease: Lease) -> AttemptStopped:
    """What check raises once the flag is up."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            lease.check()
        except AttemptStopped as stop:
            return stop
        time.sleep(0.005)
    raise AssertionError("the flag never went up")


@pytest.fixture(autouse=True)
def _nobody_stops() -> Iterator[None]:
    yield
    stopping.take_back()


def test_it_is_renewed_several_times_within_its_length() -> None:
    renew = Answers(Renewed(0))
    with Lease(terms(lease_ms=900), renew) as lease:
        began = time.monotonic()
        renew.wait_for(3)
        assert time.monotonic() - began < 3
        lease.check()


def test_a_lease_that_is_given_up_is_not_renewed() -> None:
    renew = Answers(Renewed(0))
    with Lease(terms(lease_ms=1), renew):
        renew.wait_for(1)
    with Lease(terms(lease_ms=1), other := Answers(Renewed(0))):
        before = renew.times
        other.wait_for(3)
    assert renew.times - before <= 1


def test_one_thread_keeps_all_leases_of_a_process() -> None:
    for _ in range(5):
        with Lease(terms(), Answers(Renewed(0))), Lease(terms(), Answers(Renewed(0))):
            assert len([one for one in threading.enumerate() if one.name == "leases"]) == 1


def test_an_outage_of_the_store_shorter_than_two_leases_stops_nobody() -> None:
    renew = Answers(StoreUnavailable("away"), StoreMoved("another"), Renewed(0))
    with Lease(terms(lease_ms=3000), renew) as lease:
        renew.wait_for(4)
        lease.check()


def test_silence_for_two_leases_is_a_lost_lease() -> None:
    with Lease(terms(lease_ms=600), Answers(StoreUnavailable("away"))) as lease:
        began = time.monotonic()
        assert isinstance(stopped(lease), LeaseLost)
        assert time.monotonic() - began > 1.0


def test_a_claim_that_somebody_ended_stops_the_action() -> None:
    renew = Answers(Renewed(0), Lost())
    with Lease(terms(lease_ms=300), renew) as lease:
        assert isinstance(stopped(lease), LeaseLost)
        assert renew.times == 2


def test_an_ending_run_stops_the_action_and_keeps_the_claim() -> None:
    renew = Answers(StopNow("cancelled"))
    with Lease(terms(lease_ms=300), renew) as lease:
        assert isinstance(stopped(lease), RunEnding)
        renew.wait_for(3)


def test_a_claim_lost_while_stopping_is_lost() -> None:
    with Lease(terms(lease_ms=300), Answers(StopNow("cancelled"), Lost())) as lease:
        assert isinstance(stopped(lease), RunEnding)
        deadline = time.monotonic() + 20
        while not isinstance(stopped(lease), LeaseLost):
            assert time.monotonic() < deadline


def test_the_time_limit_counts_from_the_grant() -> None:
    granted = Terms(7, LONG, 1000, LONG, time.monotonic() - 0.9)
    with Lease(granted, Answers(Renewed(0))) as lease:
        began = time.monotonic()
        assert isinstance(stopped(lease), TimeUp)
        assert time.monotonic() - began < 0.9


def test_a_worker_that_shuts_down_tells_its_actions() -> None:
    with Lease(terms(), Answers(Renewed(0))) as lease:
        lease.check()
        stopping.announce()
        assert isinstance(stopped(lease), WorkerStopping)


def test_an_action_that_does_not_listen_takes_its_process_with_it() -> None:
    killed = threading.Event()
    with Lease(terms(limit_ms=1, stop_grace_ms=1), Answers(Renewed(0)), kill=killed.set):
        assert killed.wait(20)


def test_an_action_that_has_returned_is_not_killed() -> None:
    killed = threading.Event()
    with Lease(terms(limit_ms=1, stop_grace_ms=1), Answers(Renewed(0)), kill=killed.set) as lease:
        lease.action_returned()
        stopped(lease)
        assert not killed.wait(0.6)


def test_one_that_is_telling_is_killed_while_its_claim_is_kept() -> None:
    """Whoever ends the claim finds the row open, as of any other."""
    killed = threading.Event()
    with Lease(terms(limit_ms=1, stop_grace_ms=1), Answers(Renewed(0)), kill=killed.set) as lease:
        lease.telling()
        assert killed.wait(20)


@pytest.mark.parametrize("answer", [Lost(), StoreUnavailable("away")], ids=["ended by others", "cut off"])
def test_one_that_is_telling_what_nobody_else_can_know_is_spared(answer: Renewal | Exception) -> None:
    killed = threading.Event()
    with Lease(terms(lease_ms=300, stop_grace_ms=1), Answers(answer), kill=killed.set) as lease:
        lease.telling()
        assert isinstance(stopped(lease), LeaseLost)
        assert not killed.wait(1)


def test_a_renewal_that_breaks_is_a_lost_lease_and_spares_the_others() -> None:
    """A thread that died unseen would leave actions running without a lease."""
    renew = Answers(Renewed(0))
    with (
        Lease(terms(lease_ms=300), Answers(RuntimeError("a bug"))) as broken,
        Lease(terms(lease_ms=300), renew) as lease,
    ):
        assert isinstance(stopped(broken), LeaseLost)
        renew.wait_for(2)
        lease.check()


def test_a_call_is_repeated_while_its_service_is_away() -> None:
    answers: list[object] = [LedgerUnavailable("away"), StoreUnavailable("away"), "there"]

    def call() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with Lease(terms(), Answers(Renewed(0))) as lease:
        assert lease.patiently(call) == "there"


def test_a_call_is_not_repeated_for_a_claim_that_is_lost() -> None:
    def call() -> None:
        raise LedgerUnavailable("away")

    with Lease(terms(lease_ms=300), Answers(Lost())) as lease:
        stopped(lease)
        with pytest.raises(LedgerUnavailable):
            lease.patiently(call)


class Away:
    """A ledger that is away for so many calls."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __call__(self) -> str:
        self.times -= 1
        if self.times >= 0:
            raise LedgerUnavailable("away")
        return "told"


@pytest.mark.parametrize("answer", [Lost(), StoreUnavailable("away")], ids=["ended by others", "cut off"])
def test_what_only_this_process_knows_is_told_though_the_claim_is_lost(
    answer: Renewal | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with Lease(terms(lease_ms=300), Answers(answer)) as lease:
        lease.telling()
        assert isinstance(stopped(lease), LeaseLost)
        assert lease.patiently(Away(2), about_effect=True) == "told"
    assert sum("effect.untold" in line for line in caplog.text.splitlines()) == 1


def test_nobody_is_told_for_longer_than_the_attempt_may_last() -> None:
    """Its message's own time limit would end the process."""
    granted = terms(lease_ms=300, limit_ms=1000, stop_grace_ms=500)
    with Lease(granted, Answers(Lost())) as lease:
        lease.telling()
        stopped(lease)
        with pytest.raises(LedgerUnavailable):
            lease.patiently(Away(10_000), about_effect=True)
        assert 1.5 <= time.monotonic() - granted.granted_at < 10


def test_a_claim_that_was_kept_until_now_is_judged_by_whoever_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    """What it did was done before that, and is found in doubt."""
    with Lease(terms(), Answers(Renewed(0))) as lease:
        stopping.announce()
        stopped(lease)
        with pytest.raises(LedgerUnavailable):
            lease.patiently(Away(10_000), about_effect=True)
    assert "effect.untold" not in caplog.text
