"""The store on a real server: fences, identity, lifetimes, limits and what a step costs."""

from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from orchestrator.errors import ConfigError, StoreAmnesia, StoreMoved, StoreRefused, StoreUnavailable
from orchestrator.ledger.losses import STRIDE
from orchestrator.store import Store
from orchestrator.store.connection import Links
from orchestrator.store.keys import Keys
from orchestrator.store.replies import (
    Again,
    Busy,
    Committed,
    Exists,
    Fenced,
    Granted,
    InputsTooLarge,
    Later,
    Lost,
    OtherGeneration,
    Renewed,
    Republish,
    Resting,
    UndoGranted,
)
from orchestrator.store.restoring import Place
from orchestrator.store.scripts import Scripts
from orchestrator.store.stream import BEGINNING
from schemas.states import Fact
from tests.support.servers import Server, keys_of, sent_commands
from tests.support.stores import CHECK, LEASE, Clock, Scene, clocked_store, new_run, new_step, ref_of


@pytest.fixture
def scene(redis_server: Server, namespace: str) -> Scene:
    store, clock = clocked_store(redis_server.url, namespace)
    return Scene(store, clock, ref_of("store"))


# ---- fences


def test_an_old_holder_can_neither_renew_nor_commit(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0), new_step("y", 1, "x"))
    old = scene.claim("x", "old")
    scene.clock.advance(LEASE + 1)
    assert isinstance(scene.store.guard.expire_lease(scene.ref, "x", old.fence, Fact.NONE), Again)
    new = scene.claim("x", "new")
    assert new.fence > old.fence
    guard = scene.store.guard
    assert guard.renew_lease(scene.ref, "x", old.fence, "old") == Lost()
    assert guard.complete_step(scene.ref, "x", old.fence, "old", '{"by":"old"}') == Fenced(new.fence)
    assert guard.complete_step(scene.ref, "x", new.fence, "old", '{"by":"old"}') == Fenced(new.fence)
    assert scene.store.views.result(scene.ref, "x") is None
    assert isinstance(guard.complete_step(scene.ref, "x", new.fence, "new", '{"by":"new"}'), Committed)
    assert scene.store.views.result(scene.ref, "x") == '{"by":"new"}'


def test_a_lapsed_holder_that_nobody_ended_goes_on(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0))
    granted = scene.claim("x")
    scene.clock.advance(10 * LEASE)
    assert scene.claim("x", "another") == Busy()
    assert isinstance(scene.store.guard.renew_lease(scene.ref, "x", granted.fence, "claim-x"), Renewed)
    assert isinstance(scene.complete("x"), Committed)


def test_fifty_claims_at_once_have_one_winner(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0))
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: scene.claim("x", f"claim-{i}"), range(50)))
    assert sum(isinstance(answer, Granted) for answer in answers) == 1
    assert sum(answer == Busy() for answer in answers) == 49
    assert scene.store.views.step(scene.ref, "x").attempt == 1  # type: ignore[union-attr]


def test_an_attempt_is_counted_before_user_code(scene: Scene) -> None:
    """A step that kills its worker each time ends, though nobody ever reports its failure."""
    scene.accept().admit(new_step("x", 0, max_attempts=3))
    for attempt in (1, 2, 3):
        granted = scene.claim("x", f"claim-{attempt}")
        assert granted.attempt == attempt
        scene.clock.advance(LEASE + 1)
        scene.store.guard.expire_lease(scene.ref, "x", granted.fence, Fact.NONE)
    assert scene.status("x") == "failed"
    assert '"worker_lost"' in scene.store.views.errors(scene.ref)["x"]


# ---- who the store is


def test_another_server_is_told_apart(redis_server: Server, namespace: str, scene: Scene) -> None:
    redis_server.client.set(f"{{{namespace}:0}}:server", "the server before the restart")
    with pytest.raises(StoreMoved, match="ledger verify"):
        scene.accept()
    taken_over(scene)
    scene.accept()


def taken_over(scene: Scene) -> list[bool]:
    """What is done about a server that has everything; which of two runs were there."""
    restoring, place = scene.store.restoring, Place(scene.store.scripts.server(), "token")
    restoring.begin(0, place, "moved", BEGINNING)
    found = [restoring.accept_run(ref, place, STRIDE, 0) for ref in (scene.ref, ref_of("nobody"))]
    restoring.open_shard(0, place)
    return found


def test_accepting_a_server_moves_fences_ahead(redis_server: Server, namespace: str, scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0))
    before = scene.claim("x").fence
    redis_server.client.set(f"{{{namespace}:0}}:server", "another")
    assert taken_over(scene) == [True, False]
    scene.clock.advance(LEASE + 1)
    scene.store.guard.expire_lease(scene.ref, "x", before, Fact.NONE)
    assert scene.claim("x", "next").fence > before + 1_000_000


@pytest.mark.parametrize("url", ["nonsense", "http://host", "redis://:hunter2", "redis://[::1"])
def test_an_address_that_names_no_server_is_a_setting(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Links(url, 0.5)
    assert refused.value.path == "MANDOR_REDIS_URL"
    assert "hunter2" not in str(refused.value)


def test_an_address_is_told_with_what_it_leaves_out() -> None:
    assert Links("redis://", 0.5).address == "Redis at localhost:6379"


@pytest.mark.parametrize("epoch", [None, b"another"])
def test_a_store_without_our_epoch_is_not_used(
    redis_server: Server, namespace: str, scene: Scene, epoch: bytes | None
) -> None:
    key = f"{{{namespace}:0}}:epoch"
    redis_server.client.delete(key)
    if epoch:
        redis_server.client.set(key, epoch)
    with pytest.raises(StoreAmnesia):
        scene.accept()


def test_a_server_that_is_not_there_is_named(namespace: str) -> None:
    scripts = Scripts(Links("redis://127.0.0.1:1/0", 0.5), Keys(namespace, 1), "e", {})
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 did not answer"):
        Store(scripts).now_ms()


def test_a_server_that_is_no_redis_is_named(namespace: str) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        scripts = Scripts(Links(f"redis://127.0.0.1:{server.server_port}/0", 2.0), Keys(namespace, 1), "e", {})
        with pytest.raises(StoreUnavailable, match="did not answer"):
            Store(scripts).now_ms()
        server.shutdown()


# ---- runs do not meet


def test_same_submission_is_the_same_run_and_another_is_a_conflict(scene: Scene) -> None:
    scene.accept()
    assert scene.store.runs.create_run(scene.ref, new_run()) == Exists("accepted")
    answer = scene.store.runs.create_run(scene.ref, new_run(submission_hash="f" * 64))
    assert type(answer).__name__ == "Conflict"


def test_two_runs_of_one_session_share_no_key(redis_server: Server, namespace: str, scene: Scene) -> None:
    refs = [ref_of(name, "one session") for name in ("first", "second")]
    for ref in refs:
        one = Scene(scene.store, scene.clock, ref).accept().admit(new_step("x", 0))
        one.claim("x")
        one.complete("x", f'"{ref.run_id}"')
    names = [name for name in keys_of(redis_server.client, namespace) if ":run:" in name]
    for name in names:
        assert sum(ref.run_id in name for ref in refs) == 1
    assert [scene.store.views.result(ref, "x") for ref in refs] == [f'"{ref.run_id}"' for ref in refs]


# ---- lifetimes


def test_every_key_of_a_run_has_a_lifetime(redis_server: Server, namespace: str, scene: Scene) -> None:
    steps = (new_step("x", 0), new_step("y", 1, "x"), new_step("z", 2), new_step("w", 3))
    scene.accept().admit(*steps, max_parallel=2)
    scene.claim("x")
    scene.store.guard.fail_step(scene.ref, "x", scene.fences["x"], "claim-x", Fact.NONE, "{}", True)
    scene.claim("z")
    scene.complete("z")
    mine = [name for name in keys_of(redis_server.client, namespace) if ":run:" in name]
    assert {name.rsplit(":", 1)[1] for name in mine} >= {"plan", "steps", "dependants", "results", "errors", "events"}
    for name in mine:
        assert redis_server.client.pttl(name) > 0, name


def test_a_confirmed_run_leaves_due_and_its_keys_go(redis_server: Server, namespace: str, scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0))
    scene.claim("x")
    scene.complete("x")
    scene.store.runs.settle(scene.ref, 1)
    assert scene.store.admin.live_runs(0) == (scene.ref,)
    scene.store.runs.confirm_end(scene.ref, 1)
    assert scene.store.admin.live_runs(0) == ()
    state = scene.store.keys.state(scene.ref)
    assert 0 < redis_server.client.pttl(state) <= 86_400_000


def test_a_run_that_is_undone_beyond_its_deadline_stays_whole(
    redis_server: Server, namespace: str, scene: Scene
) -> None:
    """As long as it moves, none of its keys goes before the others."""
    scene.accept().admit(new_step("x", 0, effect="keyed"), new_step("y", 1, "x"))
    scene.claim("x")
    scene.complete("x")
    scene.claim("y")
    scene.store.guard.fail_step(scene.ref, "y", scene.fences["y"], "claim-y", Fact.NONE, "{}", False)
    scene.store.runs.settle(scene.ref, 1)
    scene.clock.advance(3_600_001)
    assert isinstance(scene.claim_undo("x"), UndoGranted)
    mine = [name for name in keys_of(redis_server.client, namespace) if ":state:" in name]
    lives = [redis_server.client.pttl(name) for name in mine]
    assert len(mine) > 6
    assert max(lives) - min(lives) < 10_000


def test_an_old_generation_s_end_is_not_taken_for_the_new_one_s(scene: Scene) -> None:
    """Who settled the first generation is slow to say that the ledger has it."""
    scene.accept(on_failure="stop").admit(new_step("x", 0))
    scene.claim("x")
    scene.store.guard.fail_step(scene.ref, "x", scene.fences["x"], "claim-x", Fact.NONE, "{}", False)
    scene.store.runs.settle(scene.ref, 1)
    scene.store.runs.retry(scene.ref, 1, "ann", 3_600_000)
    scene.store.runs.cancel(scene.ref, 2)
    assert scene.store.runs.settle(scene.ref, 2).status == "cancelled"  # type: ignore[union-attr]
    assert scene.store.runs.confirm_end(scene.ref, 1) == OtherGeneration(2)
    assert scene.store.admin.live_runs(0) == (scene.ref,)
    scene.store.runs.confirm_end(scene.ref, 2)
    assert scene.store.admin.live_runs(0) == ()


# ---- room, inputs, size


def test_no_more_steps_are_out_than_the_policy_allows(scene: Scene) -> None:
    scene.accept().admit(*(new_step(f"s{i}", i) for i in range(9)), max_parallel=3)
    for done in range(9):
        statuses = [step.status for step in scene.store.views.steps(scene.ref)]
        assert statuses.count("dispatched") + statuses.count("running") == min(3, 9 - done)
        step_id = f"s{done}"
        assert isinstance(scene.claim(step_id), Granted)
        scene.complete(step_id)
    assert scene.store.runs.settle(scene.ref, 1).status == "succeeded"  # type: ignore[union-attr]


def test_a_waiting_retry_gives_its_room_to_others(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0), new_step("y", 1), max_parallel=1)
    scene.claim("x")
    answer = scene.store.guard.fail_step(scene.ref, "x", scene.fences["x"], "claim-x", Fact.NONE, "{}", True)
    assert [message.step_id for message in answer.publish] == ["y"]  # type: ignore[union-attr]


def test_results_come_with_the_claim_and_within_a_limit(scene: Scene) -> None:
    steps = (new_step("a", 0), new_step("b", 1, "a", refs=("a",)), new_step("c", 2, "b", refs=("a", "b")))
    scene.accept().admit(*steps, inputs_bytes=20)
    scene.claim("a")
    scene.complete("a", '"twelve bytes"')
    assert scene.claim("b").inputs == {"a": '"twelve bytes"'}
    scene.complete("b", '"more bytes"')
    answer = scene.claim("c")
    assert isinstance(answer, InputsTooLarge)
    assert (answer.bytes, answer.limit) == (26, 20)
    assert "MANDOR_INPUTS_BYTES" in scene.store.views.errors(scene.ref)["c"]
    assert scene.claim("c", "claim-c") == answer


def test_ten_thousand_steps_are_admitted_freed_and_ended(scene: Scene) -> None:
    steps = [new_step("first", 0)] + [new_step(f"s{i}", i, "first") for i in range(1, 10_000)]
    scene.accept().admit(*steps, max_parallel=10_000)
    scene.claim("first")
    freed = scene.complete("first")
    assert len(freed.publish) == 9_999
    assert scene.complete("first") == freed
    scene.store.runs.cancel(scene.ref, 1)
    counts = scene.store.views.run(scene.ref).counts  # type: ignore[union-attr]
    assert counts == {"completed": 1, "skipped": 9_999}


def test_a_step_costs_two_calls_whatever_the_size_of_its_run(redis_server: Server, scene: Scene) -> None:
    """Counted on the server: one script for the claim, one for the commit."""
    for size in (10, 5_000):
        one = Scene(scene.store, scene.clock, ref_of(f"size {size}"))
        one.accept().admit(*(new_step(f"s{i}", i) for i in range(size)), max_parallel=size)
        one.claim("s0")
        one.complete("s0")
        with sent_commands(redis_server) as sent:
            for i in range(1, 10):
                one.claim(f"s{i}")
                one.complete(f"s{i}")
        assert sent == ["EVALSHA"] * 2 * 9
        assert (redis_server.client.memory_usage(scene.store.keys.state(one.ref)) or 0) < 8_192


# ---- sweeps


def test_after_an_outage_holders_may_renew_first(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0))
    runs = scene.store.runs
    assert runs.begin_pass(0, "leases", 2000)
    scene.claim("x")
    scene.clock.advance(60_000)
    assert runs.begin_pass(0, "leases", 2000)
    assert runs.take_due(0, "leases", 10) == Resting(scene.clock.now + LEASE)
    scene.clock.advance(2000)
    assert runs.begin_pass(0, "leases", 2000)
    assert isinstance(runs.take_due(0, "leases", 10), Resting)
    scene.clock.advance(LEASE)
    taken = runs.take_due(0, "leases", 10)
    assert [due.step_id for due in taken] == ["x"]  # type: ignore[union-attr]


def look_at_leases(scene: Scene, after_ms: int) -> tuple[str | None, ...] | Resting:
    """One pass, so long after the last one: what it took."""
    scene.clock.advance(after_ms)
    assert scene.store.runs.begin_pass(0, "leases", 2000)
    taken = scene.store.runs.take_due(0, "leases", 10)
    return taken if isinstance(taken, Resting) else tuple(due.step_id for due in taken)


@pytest.mark.parametrize("share", [0.51, 0.6, 0.9, 1.5])
@pytest.mark.parametrize("phase", range(6))
def test_passes_that_are_always_late_reclaim_all_the_same(scene: Scene, share: float, phase: int) -> None:
    """However long ago the last rest was when the claim was made."""
    scene.accept().admit(new_step("x", 0))
    apart = round(share * LEASE)
    for _ in range(1 + phase):
        look_at_leases(scene, apart)
    lapses = scene.claim("x").lease_end
    rests = 1 if share < 2 / 3 else 2
    while look_at_leases(scene, apart) != ("x",):
        assert scene.clock.now < lapses + LEASE + (1 + rests) * apart


def test_a_second_outage_right_behind_the_first_is_one_too_but_no_third(scene: Scene) -> None:
    """In between no pass has taken anything, and holders had no whole lease in which to renew."""
    scene.accept().admit(new_step("x", 0))
    look_at_leases(scene, 0)
    scene.claim("x")
    assert look_at_leases(scene, 20_000) == Resting(scene.clock.now + LEASE)
    assert look_at_leases(scene, 20_000) == Resting(scene.clock.now + LEASE)
    assert look_at_leases(scene, 20_000) == ("x",)
    assert look_at_leases(scene, 20_000) == Resting(scene.clock.now + LEASE)


def test_two_beats_at_once_make_one_pass(scene: Scene) -> None:
    runs = scene.store.runs
    assert [runs.begin_pass(0, "settles", 2000) for _ in range(3)] == [True, False, False]
    scene.clock.advance(1000)
    assert runs.begin_pass(0, "settles", 2000)


def test_what_a_pass_took_comes_again_if_it_dies(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0), new_step("y", 1))
    runs = scene.store.runs
    scene.clock.advance(CHECK)
    assert len(runs.take_due(0, "dispatches", 1)) == 1  # type: ignore[arg-type]
    assert len(runs.take_due(0, "dispatches", 10)) == 1  # type: ignore[arg-type]
    assert runs.take_due(0, "dispatches", 10) == ()
    scene.clock.advance(10_000)
    assert len(runs.take_due(0, "dispatches", 10)) == 2  # type: ignore[arg-type]


def checks_until_republished(scene: Scene, clock: Clock) -> int:
    for check in range(1, 10):
        clock.advance(CHECK * 2**check)
        answer = scene.store.runs.check_dispatch(scene.ref, "x", queue_empty=False)
        if isinstance(answer, Republish):
            return check
        assert isinstance(answer, Later)
    return 0


def test_a_backlog_is_not_a_lost_message(scene: Scene) -> None:
    """A queue with messages in it: published again at the sixth check, not before."""
    scene.accept().admit(new_step("x", 0))
    assert checks_until_republished(scene, scene.clock) == 6


def test_a_message_that_was_overtaken_is_lost(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0), new_step("w", 1), new_step("y", 2, "w"))
    scene.claim("w")
    scene.clock.advance(31_000)
    scene.complete("w")
    assert isinstance(scene.store.runs.check_dispatch(scene.ref, "x", queue_empty=False), Later)
    scene.claim("y")
    assert isinstance(scene.store.runs.check_dispatch(scene.ref, "x", queue_empty=False), Republish)


def test_an_empty_queue_has_lost_its_message(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0))
    answer = scene.store.runs.check_dispatch(scene.ref, "x", queue_empty=True)
    assert isinstance(answer, Republish)
    assert answer.publish[0].step_id == "x"
    assert isinstance(scene.claim("x"), Granted)


# ---- events


def test_each_transition_is_one_version_and_one_event(scene: Scene) -> None:
    scene.accept().admit(new_step("x", 0), new_step("y", 1, "x"))
    for step_id in ("x", "y"):
        scene.claim(step_id)
        scene.complete(step_id)
    scene.store.runs.settle(scene.ref, 1)
    events = scene.store.views.events(scene.ref)
    assert [event.version for event in events] == list(range(1, scene.version + 1))
    committed = [event for event in events if event.event == "step.committed"]
    assert [event.fields["step_id"] for event in committed] == ["x", "y"]
    assert ("y", "dispatched", 0, 0) in committed[0].steps
    assert {event.fields["policy_hash"] for event in committed} == {"b" * 64}
    assert scene.store.views.events(scene.ref, after=events[2].id) == events[3:]


@pytest.mark.parametrize("words", [("SET",), ("DEL",), ("EVAL",), ("CONFIG", "SET"), ("XINFO", "SET"), ("hset",)])
def test_what_writes_cannot_be_asked(scene: Scene, words: tuple[str, ...]) -> None:
    """So every write is a script, or is told, and a test that wraps these meets it."""
    scripts, key = scene.store.scripts, scene.store.keys.shard_part(0, "epoch")
    epoch = scripts.ask("GET", key)
    with pytest.raises(ValueError, match="is no read"):
        scripts.ask(*words, key, "another")
    with pytest.raises(ValueError, match="is no read"):
        scripts.ask_all([("GET", key), (*words, key, "another")])
    assert scripts.ask("GET", key) == epoch


def test_a_read_among_many_that_is_refused_leaves_the_connection_as_it_was(scene: Scene) -> None:
    scripts, key = scene.store.scripts, scene.store.keys.shard_part(0, "epoch")
    epoch = scripts.ask("GET", key)
    assert scripts.ask_all([("GET", key), ("EXISTS", key)]) == [epoch, 1]
    with pytest.raises(StoreRefused):
        scripts.ask_all([("GET", key), ("HGET", key, "x"), ("EXISTS", key)])
    assert scripts.ask("GET", key) == epoch
