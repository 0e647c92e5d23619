"""The ledger of one installation, as the rest of the project calls it: every method is one transaction."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from sqlalchemy import Connection

from orchestrator.ledger import census, history, letters, prune, reads, writes
from orchestrator.ledger.answers import NotClosed, RowClosed
from orchestrator.ledger.census import Census
from orchestrator.ledger.deliveries import Deliveries
from orchestrator.ledger.effects import EffectRows
from orchestrator.ledger.elsewhere import Elsewhere, TransactionalRows
from orchestrator.ledger.engine import PATIENCE_S, Database
from orchestrator.ledger.files import FilesOfRuns
from orchestrator.ledger.history import History
from orchestrator.ledger.losses import Losses
from orchestrator.ledger.rows import (
    Accepted,
    AcceptedRun,
    AdmittedPlan,
    ConflictingSubmission,
    Decision,
    DecisionOver,
    Epoch,
    LedgerRun,
    ListedRun,
    PlannerAnswer,
    Pruned,
    Record,
    RecordChange,
    RunFilter,
    StoredPlan,
)
from orchestrator.ledger.triage import Triage
from schemas.dead_letter import DeadLetter, DeadLetterKind
from schemas.ids import RunRef
from schemas.states import EffectClass, RunStatus

ANY_RUN: Final = RunFilter()


def wall_ms() -> int:
    """This host's clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Ledger:
    """What is remembered when the state store forgets.

    A method either returns after its transaction is on disk or raises and has changed nothing; it may be repeated until
    it returns, and then answers as its docstring says. All raise LedgerUnavailable when the database cannot be reached
    within the patience, and LedgerMissing when its schema is not the one this release needs. Safe to share between
    threads, and across a fork.
    """

    def __init__(
        self, database: Database, clock: Callable[[], int] = wall_ms, elsewhere: Sequence[Elsewhere] = ()
    ) -> None:
        self._database = database
        self._clock = clock
        self._elsewhere = elsewhere
        self.effects = EffectRows(database.writing, database.reading, clock)
        self.history = History(database.writing, database.reading, clock)
        self.losses = Losses(database.writing, database.reading, clock)
        self.files = FilesOfRuns(database.writing, database.reading, clock)
        self.triage = Triage(database.writing, database.reading, clock)
        self.deliveries = Deliveries(database.writing, database.reading, clock)
        self.late = self.effects.late
        self.transactional = TransactionalRows(self.effects, elsewhere)

    def rows_of(self, effect: EffectClass) -> EffectRows | TransactionalRows:
        """Where the effects of steps of this class are looked for and closed."""
        return self.transactional if effect is EffectClass.TRANSACTIONAL else self.effects

    def now_ms(self) -> int:
        """The clock that stamps the ledger's rows, in milliseconds since the epoch."""
        return self._clock()

    def begin(self) -> AbstractContextManager[Connection]:
        """A transaction of the caller's own: commits at the end of the block, rolls back if an exception leaves it.

        One at a time, in all processes: what the block reads stays true until it commits. Others wait for it, so keep
        it short, and a thread that has one cannot have another.
        """
        return self._database.writing(alone=True)

    def close(self) -> None:
        """Close this process's idle connections; the last process to do so leaves one file, without its journal. The
        ledger can be used again.
        """
        self._database.close()
        for each in self._elsewhere:
            each.close()

    def upgrade(self) -> None:
        """Create the file and bring the schema to this release's revision; all of it or nothing. Repeated, or by
        several processes at once: the first one does it, the others find it done.
        """
        from orchestrator.ledger import migrations  # Alembic takes half a second to import

        self._database.prepare()
        with self._database.writing(alone=True, any_revision=True) as connection:
            migrations.run(connection)

    def check_schema(self) -> None:
        """Return if the database can be reached and holds our schema; else raise."""
        with self._database.reading():
            pass

    def check_elsewhere(self) -> int:
        """Return how many databases of the users' own there are, if all can be reached and are prepared; else raise."""
        for each in self._elsewhere:
            each.check()
        return len(self._elsewhere)

    def accept(self, run: AcceptedRun) -> Accepted | ConflictingSubmission:
        """Remember a run before anything else knows of it.

        Atomic: one row, unique by run_id. A repeat with the same submission_hash answers created False and the row that
        stands, whose policy and deadline are the ones in force; with another hash ConflictingSubmission. After a crash
        behind it the run is here and nowhere else: repeat the submission, or let the audit adopt it.
        """
        with self._database.writing() as connection:
            return writes.accept(connection, run, self._clock())

    def run(self, run_id: str) -> LedgerRun | None:
        """All that is known of one run."""
        with self._database.reading() as connection:
            return reads.run(connection, run_id)

    def listed(self, limit: int, before: str | None = None, wanted: RunFilter = ANY_RUN) -> list[ListedRun]:
        """Up to `limit` runs that are wanted, newest first, accepted before the run `before`: the last of the page that
        was read. Of what a list shows: goals, contexts and plans stay where they are.
        """
        with self._database.reading() as connection:
            return reads.listed_runs(connection, limit, before, wanted)

    def open_runs(self, after: str | None, limit: int, namespace: str) -> list[LedgerRun]:
        """Up to `limit` runs of a namespace that have no end yet, in the order of their ids, beyond the id `after`."""
        with self._database.reading() as connection:
            return reads.open_runs(connection, after, limit, namespace)

    def open_refs(self, after: str | None, limit: int, namespace: str) -> list[RunRef]:
        """The names of such runs, for who looks for a few among many; namespace "": of runs that are nobody's yet."""
        with self._database.reading() as connection:
            return reads.open_refs(connection, after, limit, namespace)

    def reopening_refs(self, after: str | None, limit: int, namespace: str) -> list[RunRef]:
        """The names of ended runs that may be open in the state store by now: that is told of a retry, or of an undo
        that is begun again, before this ledger is. In the order of their ids, as above."""
        with self._database.reading() as connection:
            return reads.reopening_refs(connection, after, limit, namespace)

    def claim_run(self, run_id: str, namespace: str) -> bool:
        """Note whose a run is that nobody's was. False: it is somebody's already."""
        with self._database.writing() as connection:
            return writes.claim_run(connection, run_id, namespace)

    def store_plan(
        self,
        run_id: str,
        generation: int,
        plan_hash: str,
        plan_text: str,
        planner: str | None,
        admitted: AdmittedPlan | None = None,
    ) -> StoredPlan:
        """Keep a plan before the state store hears of it; the first of a generation stays.

        admitted: its steps with their limits, as the state store will be given them.
        Answers the plan that stands, which is the one to go on with. After a crash behind it the next planner call
        finds the plan and calls no model. NotFound: no such run was accepted.
        """
        plan = StoredPlan(run_id, generation, plan_hash, plan_text, planner, self._clock())
        with self._database.writing() as connection:
            stands = writes.store_plan(connection, plan)
            if admitted is not None and stands.plan_hash == plan_hash:
                history.keep_admitted(connection, run_id, generation, admitted)
        return stands

    def plan(self, run_id: str, generation: int) -> StoredPlan | None:
        """The plan of one generation of a run."""
        with self._database.reading() as connection:
            return reads.plan(connection, run_id, generation)

    def newest_plan(self, run_id: str) -> StoredPlan | None:
        """The plan a run goes by: a generation that was not planned anew has that of the one before."""
        with self._database.reading() as connection:
            return reads.newest_plan(connection, run_id)

    def store_answer(
        self, run_id: str, generation: int, number: int, planner: str, raw_text: str, details_text: str
    ) -> PlannerAnswer:
        """Keep what a planner answered before anybody judges it; the first answer of a number stays.

        Answers the one that stands, which is the one to go on with. After a crash behind it the next delivery finds
        the answer and pays for none. NotFound: no such run was accepted.
        """
        answer = PlannerAnswer(run_id, generation, number, planner, raw_text, details_text, self._clock())
        with self._database.writing() as connection:
            return writes.store_answer(connection, answer)

    def planner_answers(self, run_id: str, generation: int) -> list[PlannerAnswer]:
        """What the planner has answered in one generation of a run, in order."""
        with self._database.reading() as connection:
            return reads.planner_answers(connection, run_id, generation)

    def start_undoing(self, run_id: str, generation: int) -> bool:
        """Remember that a run is being undone before the state store begins to. False: it has its end already.

        Repeated by whoever begins again after a crash. NotFound: no such run was accepted.
        """
        with self._database.writing() as connection:
            return writes.start_undoing(connection, run_id, generation)

    def end_run(
        self,
        run_id: str,
        generation: int,
        status: RunStatus,
        reason: str | None,
        version: int,
        ended_at_ms: int,
        errors: Collection[str] = (),
    ) -> bool:
        """Write how a generation of a run ended, after the state store settled it, and with it, where somebody wants to
        be told, that this is owed. errors: kinds it is found by.

        True: written by this call. False: this generation (or a later one) has its end already, which stays as it is.
        In both cases the ledger has the end. After a crash before it the run is still due, and settled again.
        NotFound: no such run was accepted.
        """
        with self._database.writing() as connection:
            return writes.end_run(connection, run_id, generation, status, reason, version, ended_at_ms, errors)

    def decide(
        self,
        run_id: str,
        generation: int,
        kind: str,
        by: str,
        reason: str | None,
        step_id: str | None = None,
        details_text: str | None = None,
        decision_id: str | None = None,
    ) -> str:
        """Keep what a person decided before the state store is told; answers the decision's id.

        While a decision that says the same for the same generation waits, a repeat answers its id. decision_id: the one
        it is to have, by which a repeat finds it for ever. After a crash
        behind it the decision is pending and a supervisor carries it out. NotFound: no such run was accepted.
        """
        values: dict[str, Any] = {"run_id": run_id, "generation": generation, "kind": kind, "step_id": step_id}
        values |= {"made_by": writes.writable(by), "reason": writes.writable(reason), "created_at": self._clock()}
        with self._database.writing() as connection:
            return writes.decide(connection, {**values, "details_text": details_text}, decision_id)

    def pending_decisions(
        self, limit: int, run_id: str | None = None, namespace: str | None = None, after: Decision | None = None
    ) -> list[Decision]:
        """Up to `limit` decisions that were not carried out yet, oldest first, behind `after`; of one run; of one
        namespace."""
        with self._database.reading() as connection:
            return reads.pending_decisions(connection, limit, run_id, namespace, after)

    def decision(self, decision_id: str) -> Decision | None:
        """One decision, carried out or not."""
        with self._database.reading() as connection:
            return reads.decision(connection, decision_id)

    def decisions_of(self, run_id: str) -> list[Decision]:
        """What people have ordered about a run, oldest first."""
        with self._database.reading() as connection:
            return reads.decisions_of(connection, run_id)

    def answer_effect(
        self, decision_id: str, run_id: str, step_id: str, fence: int, token: str, landed: bool, result_text: str
    ) -> RowClosed | NotClosed | DecisionOver:
        """Write into a step's effect row what a person says became of it, before the store is told.

        Only for a decision that is not carried out yet: when the store has taken it, a new attempt may have begun.
        EffectRefused: the row belongs to another step token. See EffectRows.answer for the rest.
        """
        with self._database.writing() as connection:
            if not writes.pending_decision(connection, decision_id):
                return DecisionOver()
            return self.effects.answer(run_id, step_id, fence, token, landed, result_text, connection)

    def reopen_run(self, run_id: str, generation: int, status: RunStatus) -> bool:
        """A run was started over: it has no end any more. False: the ledger knows this generation already.

        After a crash before it the decision that started the run over is still pending, and repeated.
        """
        with self._database.writing() as connection:
            return writes.reopen_run(connection, run_id, generation, status)

    def decision_done(self, decision_id: str, outcome: str) -> bool:
        """Note the store's answer to a decision. False: there is one already (it stays), or no such decision."""
        with self._database.writing() as connection:
            return writes.decision_done(connection, decision_id, outcome, self._clock())

    def record(self, entity_id: str) -> Record | None:
        """A record of the record action, by its UUID in lower case."""
        with self._database.reading() as connection:
            return reads.record(connection, entity_id)

    def record_changes(self, run_id: str) -> list[RecordChange]:
        """What a run changed in records, in the order of the changes."""
        with self._database.reading() as connection:
            return reads.record_changes(connection, run_id)

    def write_letter(self, letter: DeadLetter, dedup_key: str, namespace: str) -> str:
        """Keep a dead letter; answers the id of the letter that stands.

        namespace: of who writes it; a letter about a run is of the run's. dedup_key: what was given up on, and in which
        generation. A repeat, also with another id or content, changes nothing. Whoever writes it before a transition
        finds it when that is repeated after a crash.
        """
        with self._database.writing() as connection:
            return letters.write(connection, letter, dedup_key, namespace)

    def letters(
        self, limit: int, before: str | None = None, kind: DeadLetterKind | None = None, run_id: str | None = None
    ) -> list[DeadLetter]:
        """Up to `limit` letters, newest first, older than the letter `before`; of one kind, of one run."""
        with self._database.reading() as connection:
            return letters.page(connection, limit, before, kind, run_id)

    def letter(self, letter_id: str, namespace: str | None = None) -> DeadLetter | None:
        """One letter with all its content; of one namespace."""
        with self._database.reading() as connection:
            return letters.one(connection, letter_id, namespace)

    def census(self, namespace: str) -> Census:
        """How much of a namespace is still waited for."""
        with self._database.reading() as connection:
            return census.take(connection, self._clock(), namespace)

    def prune(self, runs_before_ms: int, letters_before_ms: int, limit: int) -> Pruned:
        """Delete up to `limit` runs that ended before a moment, with all that belongs to them, and as many letters that
        were written before another.

        A run whose callback is still to be told stays. Repeat it while it finds any: each call is short, and keeps
        others from writing no longer. A request_id of a run that went is free again. After a crash in between a repeat
        goes on.
        """
        with self._database.reading() as connection:
            going = prune.old_runs(connection, runs_before_ms, limit)
        for each in self._elsewhere if going else ():
            each.forget(going)
        with self._database.writing() as connection:
            forgotten = prune.forget_runs(connection, going, runs_before_ms)
            return Pruned(forgotten, prune.forget_letters(connection, letters_before_ms, limit))

    def create_epoch(self, namespace: str, shards: int) -> Epoch:
        """The namespace's epoch, drawn by the first call: every caller gets the same. ConfigError: it was drawn for
        another number of shards, which cannot change, because every key's place depends on it.
        """
        with self._database.writing() as connection:
            return writes.create_epoch(connection, namespace, shards, self._clock())

    def epoch(self, namespace: str) -> Epoch | None:
        """The namespace's epoch, None before create_epoch."""
        with self._database.reading() as connection:
            return reads.epoch(connection, namespace)


def open_ledger(
    url: str,
    *,
    patience_s: float = PATIENCE_S,
    clock: Callable[[], int] = wall_ms,
    effects_urls: Iterable[str] = (),
    respite: float = 0.0,
) -> Ledger:
    """The ledger at a database URL. Nothing is opened before the first use. ConfigError: no URL of a ledger.

    patience_s: how long a transaction waits for others before LedgerUnavailable. effects_urls: databases in which
    transactional actions have effects of their own. respite: how many times as long as somebody of this process has
    waited in vain for one of these databases, all others are refused at once.
    """
    elsewhere = [Elsewhere(one, patience_s, clock, respite) for one in effects_urls]
    return Ledger(Database(url, patience_s, respite=respite), clock, elsewhere)


def upgrade_effects(url: str) -> None:
    """Make what a database of the users' own needs for effects of transactional actions; repeated, nothing."""
    elsewhere = Elsewhere(url, PATIENCE_S, wall_ms)
    try:
        elsewhere.upgrade()
    finally:
        elsewhere.close()
