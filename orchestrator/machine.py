"""The one table of what may happen to a run and to a step.

The scripts take their legal moves from here (a move that is not in the table is an error in the script), the test of
every state against every event reads it, and so does the page docs/states.md.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """In `state`, when `event` comes and `guard` holds, the state becomes `after` and the answer is `reply`.

    guard "" : always. after None: nothing moves. script: the file in orchestrator/store/lua that applies the rule.
    """

    state: str
    event: str
    guard: str
    after: str | None
    reply: str
    script: str


def _step(state: str, event: str, guard: str, after: str | None, reply: str, script: str | None = None) -> Rule:
    return Rule(state, event, guard, after, reply, script or event)


def _nothing(states: tuple[str, ...], event: str, reply: str) -> tuple[Rule, ...]:
    return tuple(_step(state, event, "", None, reply) for state in states)


IDLE: Final = ("pending", "waiting_approval", "ready", "dispatched", "backoff")
DONE: Final = ("completed", "failed", "in_doubt", "skipped")
CLAIM_ENDS: Final = ("complete_step", "fail_step", "hand_back", "expire_lease")

_CONCLUDED: Final = (
    ("landed", "completed", "committed"),
    ("attempts left", "backoff", "retry_at"),
    ("none, no attempts left", "failed", "failed"),
    ("maybe, no attempts left", "in_doubt", "in_doubt"),
    ("none, run failing", "skipped", "skipped"),
)

STEP_RULES: Final[tuple[Rule, ...]] = (
    # claim_step: the run is healthy
    _step("dispatched", "claim_step", "", "running", "granted"),
    _step("running", "claim_step", "", None, "busy"),
    _step("running", "claim_step", "dead, pure", "running", "granted"),
    _step("running", "claim_step", "dead, not pure", None, "close_first"),
    _step("running", "claim_step", "dead, pure, no attempts left", None, "close_first"),
    _step("dispatched", "claim_step", "inputs too large", "failed", "inputs_too_large"),
    _step("dispatched", "claim_step", "inputs too large, touched", "in_doubt", "inputs_too_large"),
    _step("completed", "claim_step", "", None, "completed"),
    _step("dispatched", "claim_step", "paused", "ready", "not_due"),
    # ready: it waits for room, whoever has it next is told
    *_nothing(("pending", "waiting_approval", "ready", "backoff"), "claim_step", "not_due"),
    # a step that failed, is in doubt or skipped has ended its run
    *_nothing(("failed", "in_doubt", "skipped"), "claim_step", "stop"),
    # renewal moves nothing
    _step("running", "renew_lease", "holder", None, "ok"),
    _step("running", "renew_lease", "holder, run failing", None, "stop"),
    _step("running", "renew_lease", "other holder", None, "lost"),
    *_nothing((*IDLE, *DONE), "renew_lease", "lost"),
    # the ways a claim ends
    _step("running", "complete_step", "holder", "completed", "committed"),
    *(_step("running", "fail_step", guard, after, reply) for guard, after, reply in _CONCLUDED),
    *(_step("running", "hand_back", guard, after, reply) for guard, after, reply in _CONCLUDED[:2]),
    _step("running", "hand_back", "too often", "failed", "too_often"),
    _step("running", "expire_lease", "lapsed, landed", "completed", "committed"),
    _step("running", "expire_lease", "lapsed, attempts left", "dispatched", "again"),
    _step("running", "expire_lease", "lapsed, none, no attempts left", "failed", "failed"),
    _step("running", "expire_lease", "lapsed, maybe, no attempts left", "in_doubt", "in_doubt"),
    _step("running", "expire_lease", "lapsed, none, run failing", "skipped", "skipped"),
    _step("running", "expire_lease", "lease runs, pure", None, "not_lapsed"),
    _step("running", "expire_lease", "lease runs, not pure", "dispatched", "again"),
    *(_step("running", event, "other holder", None, "fenced") for event in CLAIM_ENDS),
    *(rule for event in CLAIM_ENDS for rule in _nothing((*IDLE, *DONE), event, "fenced")),
    # the parent of a lost child
    _step("running", "end_claim", "same worker", None, "ended"),
    _step("running", "end_claim", "other worker", None, "other"),
    *_nothing((*IDLE, *DONE), "end_claim", "other"),
    # supervisors
    _step("backoff", "retry_due", "wait over", "dispatched", "again"),
    _step("backoff", "retry_due", "wait lasts", None, "not_due"),
    *_nothing(("pending", "waiting_approval", "ready", "dispatched", "running", *DONE), "retry_due", "not_due"),
    _step("dispatched", "check_dispatch", "queue empty", None, "republish"),
    _step("dispatched", "check_dispatch", "backlog", None, "later"),
    *_nothing(("pending", "waiting_approval", "ready", "running", "backoff", *DONE), "check_dispatch", "not_due"),
    # the run is ended around it
    *(_step(state, "cancel", "untouched", "skipped", "ending") for state in IDLE),
    *(_step(state, "cancel", "touched", "in_doubt", "ending") for state in IDLE),
    _step("running", "cancel", "", None, "ending"),
    _step("completed", "cancel", "others open", None, "ending"),
    # people
    _step("waiting_approval", "approve", "allowed", "dispatched", "again"),
    _step("waiting_approval", "approve", "refused", "failed", "failed"),
    _step("waiting_approval", "approve", "refused, touched", "in_doubt", "failed"),
    _step("pending", "approve", "allowed, needs approval", None, "noted"),
    _step("pending", "approve", "allowed", None, "not_due"),
    *_nothing(("ready", "dispatched", "running", "backoff", *DONE), "approve", "not_due"),
    _step("in_doubt", "resolve", "landed", "completed", "committed"),
    _step("in_doubt", "resolve", "not landed, run waits", "dispatched", "again"),
    _step("in_doubt", "resolve", "not landed, run ended", "skipped", "skipped"),
    *_nothing((*IDLE, "running", "completed", "failed", "skipped"), "resolve", "not_due"),
    _step("waiting_approval", "wait_over", "wait over", "failed", "failed"),
    _step("waiting_approval", "wait_over", "wait over, touched", "in_doubt", "failed"),
    _step("waiting_approval", "wait_over", "wait lasts", None, "not_due"),
    _step("in_doubt", "wait_over", "wait over, run waits", None, "in_doubt"),
    *_nothing(("pending", "ready", "dispatched", "running", "backoff", *DONE), "wait_over", "not_due"),
    _step("failed", "retry", "run ended", "dispatched", "retried"),
    _step("skipped", "retry", "run ended", "dispatched", "retried"),
    _step("completed", "retry", "run ended", None, "retried"),
    _step("completed", "retry", "run ended, to be done again", "dispatched", "retried"),
    _step("in_doubt", "retry", "run ended", "dispatched", "retried"),
    _step("in_doubt", "retry", "run ended, once", None, "in_doubt"),
)

# undoing: sent by settle, and by each undo that is over. A step stays `compensating` while its undo is sent, claimed
# or backs off; "sent", "claimed" and "backing off" tell them apart.
UNDO_RULES: Final[tuple[Rule, ...]] = (
    _step("completed", "settle", "has an effect, nothing runs, last of its branch", "compensating", "compensating"),
    _step("completed", "settle", "has an effect, nothing runs, needed by another", None, "compensating"),
    _step("in_doubt", "settle", "nothing runs", "compensating", "compensating"),
    _step("compensating", "claim_undo", "sent", None, "granted"),
    _step("compensating", "claim_undo", "claimed", None, "busy"),
    _step("compensating", "claim_undo", "claimed, dead", None, "close_first"),
    _step("compensating", "claim_undo", "backing off", None, "not_due"),
    _step("compensated", "claim_undo", "", None, "completed"),
    _step("compensation_failed", "claim_undo", "others open", None, "not_due"),
    # a person has its letter replayed
    _step("compensation_failed", "undo_again", "", "compensating", "undoing"),
    _step("compensation_failed", "undo_again", "others open", "compensating", "undoing"),
    _step("compensation_failed", "undo_again", "other undo", None, "not_due"),
    *_nothing(("compensating", "compensated"), "undo_again", "not_due"),
    _step("compensating", "complete_undo", "holder", "compensated", "committed"),
    _step("compensating", "complete_undo", "other holder", None, "fenced"),
    _step("compensating", "fail_undo", "landed", "compensated", "committed"),
    _step("compensating", "fail_undo", "attempts left", None, "retry_at"),
    _step("compensating", "fail_undo", "no attempts left", "compensation_failed", "given_up"),
    _step("compensating", "fail_undo", "other holder", None, "fenced"),
    _step("compensating", "expire_undo", "attempts left", None, "again"),
    _step("compensating", "expire_undo", "landed", "compensated", "committed"),
    _step("compensating", "expire_undo", "no attempts left", "compensation_failed", "given_up"),
    _step("compensating", "expire_undo", "other holder", None, "fenced"),
    _step("compensating", "renew_lease", "undo, holder", None, "ok"),
    _step("compensating", "renew_lease", "undo, other holder", None, "lost"),
    _step("compensating", "end_claim", "same worker", None, "ended"),
    _step("compensating", "end_claim", "other worker", None, "other"),
    _step("compensating", "retry_due", "wait over", None, "again"),
    _step("compensating", "retry_due", "wait lasts", None, "not_due"),
    _step("compensating", "check_dispatch", "queue empty", None, "republish"),
    *(
        rule
        for event in ("complete_step", "fail_step", "hand_back", "expire_lease", "renew_lease")
        for rule in _nothing(("compensating",), event, "lost" if event == "renew_lease" else "fenced")
    ),
    _step("compensating", "claim_step", "", None, "stop"),
    *(_step("compensating", event, "", None, "not_due") for event in ("approve", "resolve", "wait_over")),
)

ENDED: Final = ("succeeded", "failed", "cancelled", "dead_lettered", "compensated", "compensation_failed")
RUN_STATES: Final = ("accepted", "planning", "running", "failing", "compensating", *ENDED)

RUN_RULES: Final[tuple[Rule, ...]] = (
    *_nothing(("accepted", "planning", "running"), "pause", "paused"),
    *_nothing(("failing", "compensating", *ENDED), "pause", "too_late"),
    _step("accepted", "resume", "paused", None, "resumed"),
    _step("planning", "resume", "paused", None, "resumed"),
    _step("running", "resume", "paused", None, "resumed"),
    *_nothing(RUN_STATES, "resume", "too_late"),
    _step("accepted", "claim_plan", "paused", None, "not_due"),
    _step("failed", "retry", "", "running", "retried"),
    _step("failed", "retry", "without a plan", "accepted", "retried"),
    _step("cancelled", "retry", "", "running", "retried"),
    _step("cancelled", "retry", "without a plan", "accepted", "retried"),
    _step("dead_lettered", "retry", "", "accepted", "retried"),
    *_nothing(
        (
            "accepted",
            "planning",
            "running",
            "failing",
            "compensating",
            "succeeded",
            "compensated",
            "compensation_failed",
        ),
        "retry",
        "too_late",
    ),
    _step("compensation_failed", "undo_again", "", "compensating", "undoing"),
    _step("compensating", "undo_again", "one could not be undone", None, "undoing"),
    *_nothing(tuple(s for s in RUN_STATES if "compensat" not in s), "undo_again", "too_late"),
    _step("compensated", "undo_again", "", None, "too_late"),
    _step("accepted", "claim_plan", "", "planning", "granted"),
    _step("accepted", "claim_plan", "wait lasts", None, "not_due"),
    _step("planning", "claim_plan", "", None, "busy"),
    _step("planning", "claim_plan", "lapsed", "planning", "granted"),
    _step("planning", "claim_plan", "lapsed, no attempts left", None, "exhausted"),
    _step("running", "claim_plan", "", None, "stored"),
    *_nothing(("failing", "compensating", *ENDED), "claim_plan", "stop"),
    _step("planning", "admit_plan", "holder", "running", "admitted"),
    _step("planning", "reject_plan", "holder", "dead_lettered", "rejected"),
    _step("planning", "fail_plan", "holder, attempts left", "accepted", "retry_at"),
    _step("planning", "fail_plan", "holder, no attempts left", "failed", "failed"),
    *(
        rule
        for event in ("admit_plan", "reject_plan", "fail_plan")
        for rule in _nothing(tuple(s for s in RUN_STATES if s != "planning"), event, "fenced")
    ),
    *(_step("planning", event, "other holder", None, "fenced") for event in ("admit_plan", "reject_plan", "fail_plan")),
    _step("planning", "expire_plan", "lapsed, attempts left", "accepted", "again"),
    _step("planning", "expire_plan", "lapsed, no attempts left", "failed", "failed"),
    _step("planning", "expire_plan", "lease runs", None, "not_due"),
    *_nothing(tuple(s for s in RUN_STATES if s != "planning"), "expire_plan", "not_due"),
    _step("running", "settle", "all completed", "succeeded", "settled"),
    _step("failing", "settle", "none runs", "failed", "settled"),
    _step("failing", "settle", "none runs, cancelled", "cancelled", "settled"),
    _step("failing", "settle", "none runs, undo owed", "compensating", "compensating"),
    _step("failing", "settle", "none runs, undo owed, not yet", None, "owing"),
    _step("failing", "settle", "one runs", None, "waiting"),
    _step("compensating", "settle", "undo owed", None, "waiting"),
    _step("compensating", "settle", "all undone", "compensated", "settled"),
    _step("compensating", "settle", "one could not be undone", "compensation_failed", "settled"),
    *_nothing(("accepted", "planning", "running"), "settle", "waiting"),
    *_nothing(ENDED, "settle", "settled"),
    *_nothing(ENDED, "confirm_end", "confirmed"),
    *_nothing(("accepted", "planning", "running", "failing", "compensating"), "confirm_end", "waiting"),
    _step("accepted", "cancel", "", "cancelled", "ending"),
    _step("planning", "cancel", "", "cancelled", "ending"),
    _step("running", "cancel", "", "failing", "ending"),
    _step("running", "cancel", "all completed", None, "too_late"),
    *_nothing(("failing", "compensating"), "cancel", "waiting"),
    *_nothing(ENDED, "cancel", "too_late"),
    _step("accepted", "deadline", "time is up", "failed", "ending"),
    _step("planning", "deadline", "time is up", "failed", "ending"),
    _step("running", "deadline", "time is up", "failing", "ending"),
    _step("running", "deadline", "time is up, all completed", None, "too_late"),
    *_nothing(("accepted", "planning", "running"), "deadline", "waiting"),
    _step("failing", "deadline", "time is up", None, "waiting"),
    _step("compensating", "deadline", "time is up", None, "waiting"),
    *_nothing(ENDED, "deadline", "too_late"),
    _step("accepted", "retry_due", "wait over", "accepted", "plan_again"),
    *_nothing(tuple(s for s in RUN_STATES if s != "accepted"), "retry_due", "not_due"),
    _step("accepted", "check_dispatch", "queue empty", None, "republish"),
    _step("accepted", "check_dispatch", "backlog", None, "later"),
    *_nothing(tuple(s for s in RUN_STATES if s != "accepted"), "check_dispatch", "not_due"),
)

# moves that are steps of one call on the way to what the rules name
_STEP_WAYS: Final = (
    "pending>ready", "pending>waiting_approval", "waiting_approval>ready", "in_doubt>ready", "failed>pending",
    "skipped>pending", "in_doubt>pending", "completed>pending", "ready>dispatched", "backoff>ready", "running>ready",
    "pending>in_doubt",  # only after a loss of memory: it may have been started by a claim that nobody remembers
)  # fmt: skip
_RUN_WAYS: Final = ("running>failing",)


def _moves(rules: tuple[Rule, ...], ways: tuple[str, ...]) -> frozenset[str]:
    return frozenset({f"{rule.state}>{rule.after}" for rule in rules if rule.after} | set(ways))


STEP_MOVES: Final = _moves((*STEP_RULES, *UNDO_RULES), _STEP_WAYS)
RUN_MOVES: Final = _moves(RUN_RULES, _RUN_WAYS)
