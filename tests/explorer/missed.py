"""Where each guard line is missed, once it is taken away: in an exploration, or in the tests that are named. What is
taken away as if it always held is missed where it is as if it never held, unless HOLDS says otherwise.

A line that is new has neither, and fails a test. What is named is run with the guard away, and must fail then.
"""

from dataclasses import dataclass
from typing import Final

from tests.explorer.guards import Guard
from tests.explorer.moves import Bounds
from tests.explorer.scenarios import Scenario

LUA: Final = "tests/lua"
STORE: Final = "tests/integration"


@dataclass(frozen=True)
class Elsewhere:
    """why: what no exploration has. Of this file the tests miss it that have this word in their name; if there is none,
    that of the script.
    """

    why: str
    file: str
    word: str = ""


@dataclass(frozen=True)
class Nowhere:
    """Nothing wrong can come of it."""

    why: str


def one(effect: str, bounds: Bounds, attempts: int = 1, **more: str | bool) -> Scenario:
    return Scenario((effect,), bounds, attempts, **more)  # type: ignore[arg-type]


PURE = one("pure", Bounds(1, 0, 0, 1), 2)
FROZEN = one("pure", Bounds(1, 1), 2)
AGAIN = one("pure", Bounds(0, 1, 1), 2)
TWICE = one("transactional", Bounds(1, 1), 2)
KEYED = one("keyed", Bounds(1, 0), 2)
RAISING = one("keyed", Bounds(1, 0, 1), 2)
CANCELLED = one("keyed", Bounds(1, 0, 0, 1), 2)
BOTH = one("keyed", Bounds(0, 0, 1, 1), 2)
RETRIED = one("keyed", Bounds(1, 0, 0, 1, 0, 1), on_failure="stop")
OVER_AGAIN = one("keyed", Bounds(0, 0, 1, 0, 0, 1), on_failure="stop")
ASKED = one("once", Bounds(1, 0, 0, 0, 1), on_failure="stop", on_doubt="wait")
CHAIN = Scenario(("keyed", "pure", "keyed"), Bounds(0, 0, 0, 1), 1)
UNDONE = Scenario(("keyed", "fails"), Bounds(0, 0), 1)
IN_ORDER = Scenario(("keyed", "keyed", "fails"), Bounds(0, 0), 1)
UNDO_AGAIN = Scenario(("keyed", "fails"), Bounds(0, 1, 1), 1)
UNDO_RAISES = Scenario(("transactional", "fails"), Bounds(1, 0, 1), 1)
UNDO_ONCE = Scenario(("once", "fails"), Bounds(1, 1), 1)
UNDO_LOST = Scenario(("transactional", "fails"), Bounds(1, 1), 1)
UNDONE_AGAIN = Scenario(("keyed", "fails"), Bounds(0, 0, 1, undos=1), 1)
IN_ORDER_AGAIN = Scenario(("keyed", "keyed", "fails"), Bounds(0, 0, 1, undos=1), 1)


def turned_down(why: str, word: str) -> Elsewhere:
    return Elsewhere(why, f"{LUA}/test_turned_down.py", word)


def by_table(why: str, word: str = "") -> Elsewhere:
    """In one of its states a run or a step answers otherwise."""
    return Elsewhere(why, f"{LUA}/test_machine.py", word)


def building(word: str, why: str = "no store forgets") -> Elsewhere:
    return Elsewhere(why, f"{LUA}/test_building.py", word)


def pausing(word: str) -> Elsewhere:
    return Elsewhere("nobody pauses", f"{LUA}/test_paused.py", word)


def told(word: str, why: str = "what is told is not judged") -> Elsewhere:
    return Elsewhere(why, f"{LUA}/test_told.py", word)


def in_store(why: str, word: str) -> Elsewhere:
    return Elsewhere(why, f"{STORE}/test_store.py", word)


def decided(why: str, word: str) -> Elsewhere:
    return Elsewhere(why, f"{STORE}/test_store_decisions.py", word)


def started_over(word: str) -> Elsewhere:
    return Elsewhere("nobody names steps that are to be done again", f"{STORE}/test_starting_over.py", word)


GONE = Elsewhere("the run is there, whole", f"{LUA}/test_not_there.py")
REPEAT = Elsewhere("no call is repeated by its own process", f"{LUA}/test_repeats.py")
GENERATION = turned_down("no run is started over where this comes late", "another_generation")
OVER = turned_down("what is over is not due", "taken_off")
QUEUE = turned_down("checks of a message are not counted", "how_far_its_queue")
LEASE_OF_PLANNING = turned_down("the plan is there", "lease_of_planning")
MENDED = Elsewhere("nothing goes out of `due` by itself", f"{LUA}/test_mended.py", "all_its_places")
LARGE = Elsewhere("runs are small", f"{LUA}/test_large_plans.py", "many_steps")
LOST = Elsewhere("checks of a message are not counted", f"{LUA}/test_messages.py", "lost")
PASSES = in_store("a pass over a shard is not a run's", "after_an_outage")
PLAN = by_table("the plan is there")
APPROVAL = by_table("nobody is asked beforehand")
CHECKED = by_table("checks of a message are not counted")
CLOCK = in_store("the clock stands still", "undone_beyond_its_deadline")
TIME = by_table("the clock stands still", "wait_lasts")
RETRY_ALL = "nobody names steps that are to be done again"
PIECES = building("none_of_its_keys")
OWED = turned_down("letters that are owed are not judged", "letter_owed")
UNSAFE = one("once", Bounds(1, 0, 1), 2)
OFTEN = "nobody hands back so often"
JOINED = Elsewhere("no more than one is begun again", f"{LUA}/test_undo_again.py", "joins_them")
STILL_WAITS = Elsewhere("no more than one is begun again", f"{LUA}/test_undo_again.py", "was_under_way")
AS_LONG = Elsewhere(OFTEN, f"{STORE}/test_undo.py", "for_as_long_as_its_run_had")
SNOOZED_TOO_OFTEN = told("handed_back_too_often", OFTEN)
WORD = "one word only, and in time"
NO_STEP = Nowhere("of a run that is gone no step is there, either, which is answered the same")
LAST = Nowhere("no script asks for such a move; all there are: tests/lua/test_machine.py")

HELD = "not held(rec) or not (run.status == 'running' or run.status == 'failing')"
UNDO_HELD = "not rec.undo or not undo_held(rec)"
OTHER_GENERATION = "num('generation') ~= tonumber(A.generation)"
RUNS = "run.status == 'running'"
OFTEN_ENOUGH = "back.times > tonumber(A.max_times)"
RETRYABLE = "A.retryable == '1'"
RUN_HOLDER = "num('plan_holder') == tonumber(fence)"
TRIES_LEFT = "num('plan_attempt') < num('plan_tries')"
WAITED_FOR = (
    "rec.wait_until and (rec.status == 'waiting_approval' or rec.status == 'in_doubt') and run.status == 'running'"
)
NOT_PLANNING = "not planning_holder(A.fence, A.claim_id)"
SEEN = "the ledger does not follow"
ALWAYS: Final[dict[str, Elsewhere]] = {
    "not load_run()": GONE,
    "in_pieces()": GONE,
    "not rec": GONE,
    "kept": REPEAT,
    "said": REPEAT,
    "A.step_id == ''": LEASE_OF_PLANNING,
}
Place = Scenario | Elsewhere | Nowhere
KNOWN: Final[dict[str, dict[str, Place | tuple[Place, ...]]]] = {
    "create_run": {
        "load_run()": REPEAT,
        "run.submission_hash ~= A.submission_hash": in_store("a run is submitted once", "another_is_a_conflict"),
        "run.created_by == A.call_id": REPEAT,
    },
    "forget_fresh": {
        "run.status ~= 'accepted' or num('version') ~= 1": turned_down("nobody takes a run back", "not_taken_back"),
    },
    "claim_plan": {
        OTHER_GENERATION: GENERATION,
        "run.status == 'planning' and num('plan_holder') ~= 0": PLAN,
        "run.plan_claim == A.claim_id": REPEAT,
        "num('plan_lease_end') > NOW and num('plan_dead') == 0": PLAN,
        "num('plan_attempt') >= num('plan_tries')": PLAN,
        RUNS: PLAN,
        "run.status ~= 'accepted'": PLAN,
        "num('paused_at') > 0": PLAN,
        "num('plan_not_before') > NOW": PLAN,
        "run.status == 'accepted'": PLAN,
    },
    "admit_plan": {
        "run.admitted_by == A.claim_id": REPEAT,
        NOT_PLANNING: PLAN,
        "#flat > 0": PLAN,
        "#texts >= 1000": LARGE,
        "rec.waiting > 0": by_table(PLAN.why, "pending-claim_step"),
        "#needs >= 1000": LARGE,
        "#flat >= 1000": LARGE,
        "ARGV[at + 14] ~= ''": by_table(APPROVAL.why, "waiting_approval-approve"),
        "ARGV[at + 15] == '1'": told("is_probed", "nobody reads a plan back"),
    },
    "reject_plan": {
        "run.status == 'dead_lettered' and run.plan_claim == A.claim_id": REPEAT,
        NOT_PLANNING: PLAN,
    },
    "fail_plan": {
        "kept and kept.at > 0": REPEAT,
        NOT_PLANNING: PLAN,
        "again": (REPEAT, PLAN, PLAN),
        RETRYABLE: PLAN,
        TRIES_LEFT: PLAN,
    },
    "expire_plan": {
        "run.status ~= 'planning'": PLAN,
        "num('plan_lease_end') > NOW and num('plan_dead') == 0": PLAN,
        "again": (PLAN, PLAN),
        TRIES_LEFT: PLAN,
    },
    "approve": {
        OTHER_GENERATION: GENERATION,
        "run.status ~= 'running'": turned_down(APPROVAL.why, "not_approved"),
        "rec.status == 'pending' and rec.approval == 'needed' and A.allowed == '1'": APPROVAL,
        "rec.status ~= 'waiting_approval'": APPROVAL,
        "A.allowed == '1'": (APPROVAL, APPROVAL),
        "word == 'again'": told("event", APPROVAL.why),
    },
    "pause": {
        "said": pausing("does_not_pause_it_again"),
        OTHER_GENERATION: GENERATION,
        "run.status ~= 'accepted' and run.status ~= 'planning' and run.status ~= 'running'": by_table("nobody pauses"),
        "num('paused_at') > 0": pausing("paused_once"),
    },
    "resume": {
        OTHER_GENERATION: GENERATION,
        "num('paused_at') == 0": by_table("nobody pauses"),
        "run.status == 'accepted' and num('plan_not_before') <= NOW": pausing("asked_and_looked_for"),
        "run.status == 'accepted'": pausing("asked_and_looked_for"),
    },
    "check_dispatch": {
        "not step_id": CHECKED,
        "run.status ~= 'accepted' or num('plan_not_before') > NOW": CHECKED,
        "lost": (LOST, CHECKED),
        "rec.status ~= 'dispatched' and not undoing": CHECKED,
        "not lost": CHECKED,
        "undoing": LOST,
        "A.step_id ~= ''": CHECKED,
        "A.queue_empty == '1'": CHECKED,
        "newest >= dispatched_at + LATE": in_store(CHECKED.why, "overtaken"),
        "checks >= SURE": in_store(CHECKED.why, "backlog"),
        "rec.status == 'compensating'": LOST,
        "rec.undo.state == 'dispatched'": LOST,
    },
    "confirm_end": {OTHER_GENERATION: GENERATION, "not TERMINAL[run.status]": by_table("the ledger is not asked")},
    "begin_pass": {
        "gap < tonumber(A.interval_ms) / 2": in_store(PASSES.why, "two_beats"),
        "A.duty == 'leases' and last > 0": PASSES,
        "(rests == 0 and gap > lease / 2) or (rests == 1 and gap >= lease * 2 / 3)": PASSES,
    },
    "take_due": {"A.duty == 'leases'": PASSES, "rest > NOW": PASSES},
    "mend_due": {
        "undo.state == 'running'": MENDED,
        "undo.state == 'dispatched'": MENDED,
        "undo.state == 'backoff'": MENDED,
        "rec.status == 'running'": MENDED,
        "rec.status == 'dispatched'": MENDED,
        "rec.status == 'backoff'": MENDED,
        "rec.status == 'compensating'": MENDED,
        "asked and rec.wait_until and run.status == 'running'": MENDED,
        "TERMINAL[run.status]": MENDED,
        "run.status == 'planning'": MENDED,
        "run.status == 'accepted' and num('plan_not_before') > NOW": MENDED,
        "run.status == 'accepted' and num('paused_at') == 0": MENDED,
        "run.plan_hash and settled()": MENDED,
        "rec.status == 'waiting_approval'": MENDED,
        "rec.status == 'in_doubt'": MENDED,
    },
    "snapshot": {"text": building("snapshot", SEEN), "name ~= 'policy'": building("snapshot", SEEN)},
    "begin_restore": {
        "A.server ~= A.judged or (known[1] == false) ~= (A.cause == 'amnesia')": building("on_another_server"),
        "known[1] and known[1] ~= A.epoch": building("as_it_was_judged"),
        "known[2] == A.server and known[1]": building("one_that_is_whole"),
        "A.next ~= ''": building("behind_what_the_ledger_has"),
    },
    "open_shard": {
        "A.server ~= A.judged": building("opened_once"),
        "known[1] == A.epoch and known[2] == A.server": building("opened_once"),
        "A.token == '' or redis.call('GET', K.restoring) ~= A.token": building("opened_once"),
    },
    "restore_run": {
        "not load_run() or in_pieces()": building("left_as_it_is"),
        "not whole": building("older_copy"),
        "stands()": building("left_as_it_is"),
        "A.stage == 'accepted'": (building("without_a_plan"), building("without_a_plan")),
        "num('paused_at') == 0": building("without_a_plan"),
        "value ~= ''": building("where_they_stood"),
        "ARGV[at + 2] == ''": building("where_they_stood"),
        "records[need].status ~= 'completed'": building("where_they_stood"),
        "rec.status == 'pending' and rec.waiting == 0": building("where_they_stood"),
        WAITED_FOR: building("still_asked"),
        "word == 'failed' or word == 'in_doubt'": building("as_its_row_says"),
        "A.stage == 'compensating'": building("being_undone"),
        "num('fence') >= tonumber(A.fence)": building("left_as_it_is"),
        "generation > heard": building("later_generation"),
        "generation == heard": building("left_as_it_is"),
        "num('version') >= tonumber(A.heard_version)": building("left_as_it_is"),
        "A.stage == 'running'": building("where_they_stood"),
    },
    "accept_run": {
        "run.accepted_by == A.call_id": REPEAT,
        RUNS: building("last_moments"),
        "rec.effect == 'idempotent' and SENT[rec.status]": building("last_moments"),
    },
    "drop_run": {
        "whole": building("dropped"),
        "gone > 0": building("dropped"),
    },
    "base": {"A.now_ms ~= ''": by_table(TIME.why, "lapsed")},
    "identity": {"known[1] ~= A.epoch": building("not_used"), "known[2] ~= A.server": building("not_used")},
    "building": {
        "known[1] == A.epoch": building("left_as_it_is"),
        "known[2] == A.server": building("left_as_it_is"),
        "A.server ~= A.judged": building("only_who_has_begun"),
        "A.token == '' and not whole": building("only_who_has_begun"),
        "A.token ~= '' and redis.call('GET', K.restoring) ~= A.token": building("only_who_has_begun"),
    },
    "run": {
        "not LEGAL_RUN[run.status .. '>' .. to]": LAST,
        "#flat > 0": (PURE, PURE),
        "redis.call('HLEN', K.steps) ~= total": PIECES,
        "redis.call('HLEN', K.plan) ~= total": PIECES,
        "redis.call('HLEN', K.results) < num('n_completed')": PIECES,
        "redis.call('LLEN', K.ready) < num('n_ready')": told("forgotten", "no store forgets"),
        "redis.call('HLEN', K.needs) ~= num('needing')": PIECES,
        "redis.call('HLEN', K.dependants) ~= num('needed')": PIECES,
        "run.status == 'planning'": by_table(PLAN.why, "planning-admit_plan"),
        RUN_HOLDER: by_table(PLAN.why, "planning-admit_plan"),
        "run.plan_claim == claim": by_table(PLAN.why, "planning-admit_plan"),
        "NOW > num('deadline_at') and not TERMINAL[run.status]": CLOCK,
        "not text": by_table(PLAN.why, "fail_plan"),
        "kept.key ~= key": Elsewhere(PLAN.why, REPEAT.file, "next_attempt"),
    },
    "claim_step": {
        OTHER_GENERATION: RETRIED,
        "#ids == 0": PURE,
        "rec.refused_by == A.claim_id": REPEAT,
        "rec.status == 'completed'": PURE,
        "rec.status == 'running' and rec.claim == A.claim_id": REPEAT,
        "run.status ~= 'running'": PURE,
        "rec.status == 'running'": (PURE, FROZEN),
        "not rec.dead": PURE,
        "rec.effect ~= 'pure' or rec.attempt >= rec.max_attempts": TWICE,
        "rec.status ~= 'dispatched'": AGAIN,
        "num('paused_at') > 0 and rec.status == 'dispatched'": by_table("nobody pauses"),
        "bytes > num('inputs_bytes')": by_table("results are small", "inputs_too_large"),
        "rec.status ~= 'running'": PURE,
        "(rec.dispatched_at or 0) > newest": QUEUE,
    },
    "complete_step": {"not load_run()": NO_STEP, HELD: KEYED},
    "fail_step": {
        "not load_run()": NO_STEP,
        HELD: RAISING,
        RETRYABLE: RAISING,
        "word == 'retry_at'": told("event"),
    },
    "hand_back": {
        "not load_run()": NO_STEP,
        HELD: RAISING,
        "word == 'failed' and often": by_table(OFTEN, "too_often"),
        OFTEN_ENOUGH: SNOOZED_TOO_OFTEN,
        "NOW - back.since >= tonumber(A.min_age_ms)": SNOOZED_TOO_OFTEN,
    },
    "expire_lease": {
        "not load_run()": NO_STEP,
        "rec.status ~= 'running' or rec.holder ~= tonumber(A.fence)": TWICE,
        "rec.status ~= 'running' and rec.status ~= 'compensating'": OVER,
        "rec.effect == 'pure' and rec.lease_end > NOW and not rec.dead": FROZEN,
        "NOW - rec.started_at >= rec.limit_ms": told("passed_its_limit", "the clock stands still"),
    },
    "renew_lease": {
        "not load_run()": NO_STEP,
        "not planning_holder(A.fence, A.claim_id) or num('plan_dead') == 1": LEASE_OF_PLANNING,
        "A.kind == 'undo'": UNDO_LOST,
        "not rec.undo or not undo_held(rec) or rec.undo.dead": UNDO_LOST,
        "not held(rec) or rec.dead": FROZEN,
        "run.status ~= 'running'": PURE,
    },
    "end_claim": {
        "run.status ~= 'planning' or num('plan_holder') == 0 or run.plan_worker ~= A.worker": LEASE_OF_PLANNING,
        "num('plan_dead') == 1": LEASE_OF_PLANNING,
        "rec.status == 'compensating'": UNDO_LOST,
        "undo.state ~= 'running' or undo.holder == 0 or undo.worker ~= A.worker": UNDO_LOST,
        "undo.dead": turned_down(REPEAT.why, "dead_child"),
        "rec.status ~= 'running' or rec.holder == 0 or rec.worker ~= A.worker": FROZEN,
        "rec.dead": REPEAT,
    },
    "claim_undo": {
        OTHER_GENERATION: GENERATION,
        "rec.status == 'compensated'": UNDO_LOST,
        "run.status ~= 'compensating'": UNDO_ONCE,
        "not undo or rec.status ~= 'compensating'": turned_down("no undo is sent before its turn", "turn_has_not_come"),
        "undo.state == 'running'": UNDO_LOST,
        "undo.claim == A.claim_id": REPEAT,
        "not undo.dead": UNDO_LOST,
        "undo.state ~= 'dispatched'": UNDO_AGAIN,
        "(rec.dispatched_at or 0) > newest": QUEUE,
    },
    "complete_undo": {"not load_run()": NO_STEP, UNDO_HELD: UNDO_LOST},
    "fail_undo": {
        "not load_run()": NO_STEP,
        UNDO_HELD: UNDO_RAISES,
        "most > 0": (AS_LONG, AS_LONG),
        "A.reason ~= ''": Elsewhere(OFTEN, f"{STORE}/test_undo.py", "snoozing_counts_no_attempt"),
        OFTEN_ENOUGH: SNOOZED_TOO_OFTEN,
        "age >= tonumber(A.min_age_ms)": SNOOZED_TOO_OFTEN,
        "age >= most": AS_LONG,
        RETRYABLE: UNDO_RAISES,
        "word == 'retry_at'": told("event"),
    },
    "expire_undo": {
        "not load_run()": NO_STEP,
        "not rec or not rec.undo": GONE,
        "rec.undo.state ~= 'running' or rec.undo.holder ~= tonumber(A.fence)": UNDO_LOST,
        "rec.undo.state ~= 'running'": OVER,
    },
    "retry_due": {
        "A.step_id == ''": by_table("the plan is there", "accepted-retry_due"),
        "run.status ~= 'accepted' or num('plan_not_before') > NOW": by_table("the plan is there", "retry_due"),
        "rec.status == 'compensating' and rec.undo.state == 'backoff'": UNDO_RAISES,
        "rec.undo.not_before > NOW": TIME,
        "rec.status ~= 'backoff' or run.status ~= 'running'": BOTH,
        "rec.not_before > NOW": TIME,
        "A.step_id ~= ''": GONE,
    },
    "wait_over": {
        "not load_run()": NO_STEP,
        "not waits or run.status ~= 'running'": ASKED,
        "rec.wait_until > NOW": TIME,
        "rec.status == 'in_doubt'": (ASKED, ASKED),
        "rec.status == 'waiting_approval'": APPROVAL,
        "word == 'failed'": (told("nobody_answered"), APPROVAL),
    },
    "settle": {
        OTHER_GENERATION: RETRIED,
        "TERMINAL[run.status]": PURE,
        "run.status == 'compensating' and run.undoing_by == A.call_id": REPEAT,
        "not settled()": by_table("a run is not settled before it is due, but by its chord"),
        "run.status == 'failing' and run.on_failure == 'compensate' and any_owed()": UNDONE,
        "A.undo == '0'": UNDONE,
        RUNS: PURE,
        "run.status == 'compensating'": UNDONE,
        "num('n_compensation_failed') > 0": by_table("the end says it", "could_not_be_undone"),
        "run.reason == 'cancelled'": by_table("the end says it", "none_runs_cancelled"),
    },
    "cancel": {OTHER_GENERATION: GENERATION},
    "deadline": {
        "run.ending_by == A.call_id": REPEAT,
        "not TERMINAL[run.status] and NOW < num('deadline_at')": by_table(
            "the clock stands still", "running-deadline-always"
        ),
    },
    "resolve": {
        OTHER_GENERATION: GENERATION,
        "not settleable[run.status]": turned_down(WORD, "too_late_once_the_run_is_undone"),
        "rec.status ~= 'in_doubt'": by_table(WORD),
        "rec.fence ~= tonumber(A.fence)": turned_down(WORD, "about_one_attempt"),
        "A.landed == '1'": ASKED,
        RUNS: (decided("nothing waits for what is in doubt", "a_doubt_waits_for_a_person"), ASKED),
    },
    "retry": {
        "run.retried_by_call == A.call_id": REPEAT,
        OTHER_GENERATION: GENERATION,
        "run.status ~= 'failed' and run.status ~= 'cancelled' and run.status ~= 'dead_lettered'": by_table(
            "nobody starts over what has not ended", "retry"
        ),
        "rec.status == 'in_doubt' and rec.effect == 'once'": decided("nobody starts that over", "once_step_in_doubt"),
        "at < first_renewed": started_over("in_order"),
        "not rec": started_over("not_there"),
        "rec.status == 'in_doubt'": started_over("in_doubt_is_refused"),
        "rec.status == 'completed' and not again[id]": started_over("kept_is_refused"),
        "step_record(need).status ~= 'completed'": decided("only what ended is started over", "keeps_what_was_done"),
        "rec.approval == 'given' and not answers_itself(rec)": started_over("approved_again"),
        "rec.status == 'completed'": (told("asked_again", RETRY_ALL), started_over("in_doubt")),
        "renewed[rec.id]": started_over("new_key"),
        "run.plan_hash and run.status ~= 'dead_lettered'": OVER_AGAIN,
        "rec.status ~= 'completed' or again[id]": OVER_AGAIN,
        "rec.status == 'pending'": OVER_AGAIN,
        "rec.waiting == 0": OVER_AGAIN,
        "run.status == 'accepted'": told("no_plan", "the plan is there"),
        "rec.effect ~= 'pure'": told("done_again", RETRY_ALL),
        "a.index < b.index": told("order_of_its_plan"),
    },
    "undo_again": {
        "run.status ~= 'compensation_failed' and run.status ~= 'compensating'": by_table(WORD),
        "rec.status ~= 'compensation_failed' or (rec.undo and rec.undo.fence ~= tonumber(A.fence))": by_table(WORD),
        "not undo or other.undo_wait == 0 or not WITHDRAWN[undo.state]": IN_ORDER_AGAIN,
        "undo.state == 'dispatched'": IN_ORDER_AGAIN,
        "run.status == 'compensation_failed'": UNDONE_AGAIN,
    },
    "steps": {
        "records[id] == nil": PURE,
        "not text": Elsewhere(GONE.why, GONE.file, "claim_step"),
        "#flat >= 1000": LARGE,
        "#flat > 0": PURE,
        "not LEGAL_STEP[rec.status .. '>' .. to]": LAST,
        RUNS: (PURE, PURE, PURE, CHAIN, OWED, PURE),
        "rec.status ~= 'compensating'": UNDONE,
        "not id": PURE,
        "type(rec.given_up) ~= 'table'": KEYED,
        "rec.approval == 'needed'": decided("nobody is asked beforehand", "approval_holds_up"),
        "other.waiting == 0 and other.status == 'pending'": CHAIN,
        "run.status == 'compensating'": (UNDONE, building("being_undone", "a check sends it as it is"), UNDONE),
        "num('paused_at') == 0": PURE,
        "num('active') < num('max_parallel')": PURE,
        "num('n_completed') == num('total')": PURE,
        "num('owed') == 0": UNDONE,
        "run.status == 'failing'": (UNDONE, MENDED),
        "num('n_running') == 0": UNDONE,
        "run.on_failure == 'compensate'": MENDED,
        "fact == 'maybe'": (CANCELLED, UNSAFE, told("in_doubt")),
        "rec.effect == 'once'": (UNSAFE, told("in_doubt")),
        "rec.status == 'running'": KEYED,
        "rec.holder == tonumber(A.fence)": KEYED,
        "rec.claim == A.claim_id": KEYED,
        "settled()": PURE,
        "not records[flat[i]]": PURE,
        "run.status ~= 'running'": (CANCELLED, CANCELLED),
        "rec.wait_until": turned_down(OVER.why, "nobody_waits_for_an_answer"),
        "IDLE_STEP[status]": PURE,
        "status == 'dispatched'": PURE,
        "fact == 'landed'": KEYED,
        "run.status == 'running' and may_retry and rec.attempt < rec.max_attempts and not unsafe": KEYED,
        "rec.touched": CANCELLED,
        "run.status == 'running' and run.on_doubt == 'wait'": ASKED,
        "healthy and (word == 'failed' or word == 'in_doubt') and not (doubtful and run.on_doubt == 'wait')": OWED,
        "not kept or kept.key ~= key": PURE,
        "TERMINAL[run.status]": PURE,
        "run.status == 'failing' or run.status == 'compensating'": BOTH,
        "why == 'deadline'": turned_down("a deadline that has come is not due again", "comes_again"),
        "run.status == 'running' and settled()": PURE,
        "run.status == 'planning'": Nowhere("the end of the run takes the lease of planning off, too"),
    },
    "undo": {
        "rec.status == 'in_doubt'": by_table("it is undone all the same", "in_doubt-settle"),
        "rec.status == 'compensating'": (JOINED, UNDONE),
        "rec.status == 'completed'": UNDONE,
        "rec.effect ~= 'pure'": UNDONE,
        "#turns > 0": UNDONE,
        "a.index > b.index": told("from_the_last_one"),
        "undo.state == 'running'": UNDONE,
        "undo.holder == tonumber(A.fence)": UNDONE,
        "undo.claim == A.claim_id": UNDONE,
        "rec.effect == 'once'": by_table("what is once is undone once", "fail_undo-no_attempts_left"),
        "fact == 'maybe'": by_table("what is once is undone once", "fail_undo-no_attempts_left"),
        "owes(rec)": (UNDONE, UNDONE, UNDONE),
        "not rec.undo or rec.undo.state == 'waiting'": UNDONE,
        "need.undo_wait == 0": IN_ORDER,
        "rec.undo_wait == 0": (UNDONE, IN_ORDER),
        "rec.undo_wait > 0": STILL_WAITS,
        "fact == 'landed'": UNDO_RAISES,
        "may_retry and rec.undo.attempt < math.max(2, rec.max_attempts) and not unsafe": UNDO_RAISES,
    },
}

ONE_HOLDER = turned_down("whoever is late has another fence and another claim", "one_holder")
NOT_HELD = Nowhere("its holder is 0 wherever it has another state")
HOLDS: Final[dict[str, dict[str, Place]]] = {
    "admit_plan": {"ARGV[at + 14] ~= ''": Nowhere("an empty word is no approval, either")},
    "check_dispatch": {"rec.undo.state == 'dispatched'": OVER},
    "fail_step": {RETRYABLE: told("event")},
    "fail_undo": {"most > 0 (2)": SNOOZED_TOO_OFTEN, RETRYABLE: told("event")},
    "restore_run": {
        "num('fence') >= tonumber(A.fence)": building("older_copy"),
        "generation > heard": building("earlier_generation"),
        "generation == heard": building("earlier_generation"),
        "num('version') >= tonumber(A.heard_version)": building("begun_anew"),
        "A.stage == 'accepted'": building("where_they_stood"),
        "A.stage == 'running'": building("failing_run_leaves"),
    },
    "resume": {"run.status == 'accepted'": pausing("waits_for_room")},
    "retry": {
        "run.status == 'accepted'": told("asked_again", RETRY_ALL),
        "rec.status == 'completed'": by_table(RETRY_ALL, "waiting_approval-wait_over-wait_over_touched"),
    },
    "settle": {
        "num('n_compensation_failed') > 0": by_table("the end says it", "all_undone"),
        "run.reason == 'cancelled'": by_table("the end says it", "failing-settle-none_runs"),
    },
    "wait_over": {
        "rec.status == 'in_doubt'": by_table("what waits for nobody is not due", "dispatched-wait_over"),
        "rec.status == 'in_doubt' (2)": told("nobody_answered"),
        "word == 'failed'": told("nobody_knew"),
    },
    "building": {"known[1] == A.epoch": building("another_epoch"), "known[2] == A.server": building("dropped")},
    "run": {
        "#flat > 0": Elsewhere(GONE.why, GONE.file, "stays_gone[forget_fresh"),
        "run.status == 'planning'": NOT_HELD,
        RUN_HOLDER: ONE_HOLDER,
        "run.plan_claim == claim": ONE_HOLDER,
    },
    "steps": {
        "run.status == 'running' (2)": Nowhere("in a run that neither runs nor is undone no step is ready"),
        "num('paused_at') == 0": pausing("waits_for_room"),
        "run.status == 'compensating'": pausing("waits_for_room"),
        "num('active') < num('max_parallel')": MENDED,
        "run.status == 'compensating' (2)": told("done_or_undone"),
        "num('n_completed') == num('total')": MENDED,
        "num('owed') == 0": MENDED,
        "run.status == 'failing'": by_table("the plan is there", "planning-settle"),
        "num('n_running') == 0": by_table("what still runs is waited for", "failing-settle-one_runs"),
        "fact == 'maybe'": told("event"),
        "rec.effect == 'once'": told("both_once_and_in_doubt", "one word of two"),
        "fact == 'maybe' (2)": told("both_once_and_in_doubt", "one word of two"),
        "run.status == 'running' (5)": turned_down(OWED.why, "no_letter_is_owed"),
        "rec.status == 'running'": NOT_HELD,
        "rec.holder == tonumber(A.fence)": ONE_HOLDER,
        "rec.claim == A.claim_id": ONE_HOLDER,
    },
    "undo": {
        "rec.status == 'in_doubt'": by_table("what had no effect is not undone", "failing-settle-none_runs"),
        "rec.status == 'completed'": JOINED,
        "rec.effect ~= 'pure'": by_table("what had no effect is not undone", "failing-settle-none_runs"),
        "#turns > 0": Elsewhere("the script ends in an error", REPEAT.file, "complete_undo"),
        "rec.status == 'compensating' (2)": NOT_HELD,
        "undo.state == 'running'": NOT_HELD,
        "undo.holder == tonumber(A.fence)": ONE_HOLDER,
        "undo.claim == A.claim_id": ONE_HOLDER,
        "rec.effect == 'once'": told("an_undo_that_is_not_both", "one word of two"),
        "fact == 'maybe'": told("an_undo_that_is_not_both", "one word of two"),
    },
}


def known(guard: Guard) -> Place | None:
    """Where it is missed, or why nowhere."""
    otherwise = HOLDS.get(guard.script, {}).get(guard.named) if guard.always else None
    return otherwise or _never(guard)


def _never(guard: Guard) -> Place | None:
    found = KNOWN.get(guard.script, {}).get(guard.condition, ALWAYS.get(guard.condition))
    if not isinstance(found, tuple):
        return found if guard.nth == 1 else None
    return found[guard.nth - 1] if guard.nth <= len(found) else None
