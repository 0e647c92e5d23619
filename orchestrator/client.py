"""For programs that submit runs and look at them: `Client().submit(planner="orders.fulfil", context={...})`."""

import random
import time
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

from orchestrator import app as celery_app
from orchestrator import decisions, dispatch, listing, submission, triage, waits
from orchestrator.admission.catalogue import Catalogue
from orchestrator.decisions import Decided, Desk, os_user
from orchestrator.errors import BrokerUnavailable, NoAnswer, StoreUnavailable
from orchestrator.ledger import ANY_LETTER, LedgerRun, LetterFilter, LetterGroup, ListedLetter, RunFilter
from orchestrator.listing import RunPage
from orchestrator.lookup import Lookup
from orchestrator.policies import FROM_BROKER
from orchestrator.replays import Wish
from orchestrator.settings import Settings
from orchestrator.settings import settings as process_settings
from orchestrator.startover import Again
from orchestrator.triage import Dealt
from orchestrator.waits import Why
from schemas.dead_letter import DeadLetter
from schemas.ids import run_id_for
from schemas.run import RunView, SubmitAnswer
from schemas.states import RUN_TERMINAL, RunStatus

ANSWER_S: Final = 10.0
NOT_HEARD: Final = "is a worker consuming the control queue? `mandor run show` tells when it is there"
FIRST_LOOK_S: Final = 0.05
LONGEST_LOOK_S: Final = 1.0


class Client:
    """Submits runs through the broker and reads them. Safe over fork and threads; opens nothing before its first use.

    Checks at its first use what our own processes check at their start: ConfigError names the setting.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or process_settings()
        self._checked = False

    def submit(self, *, timeout_s: float = ANSWER_S, **fields: Any) -> SubmitAnswer:
        """Submit and wait for the answer. fields: those of schemas.run.Submission, as JSON values.

        SubmissionRefused and SubmissionConflict are raised before anything has started. NoAnswer: nothing came in time,
        or the result store went away; the submission lies in the queue, and its run id is in the message.
        BrokerUnavailable, StoreUnavailable: nothing was sent.
        """
        task_id = str(uuid4())
        run_id = self._read(fields, task_id)
        result = self._send(fields, task_id)
        try:
            answer = dispatch.await_answer(result, timeout_s)
        except StoreUnavailable as gone:
            raise NoAnswer(f"{gone.message}; the run will be {run_id}", hint=NOT_HEARD) from None
        if answer is None:
            raise NoAnswer(f"no answer within {timeout_s:g} s; the run will be {run_id}", hint=NOT_HEARD)
        return SubmitAnswer.model_validate(answer)

    def send(self, **fields: Any) -> str:
        """Submit without waiting; answers the run id that it will have. A conflict is seen by nobody: use submit."""
        task_id = str(uuid4())
        run_id = self._read(fields, task_id)
        self._send(fields, task_id)
        return run_id

    def show(self, run_id: str) -> RunView:
        """The run as it stands. NotFound: it was never accepted."""
        return self._lookup().run(run_id)

    def runs(
        self,
        *,
        limit: int = 50,
        before: str | None = None,
        status: RunStatus | None = None,
        session_id: str | None = None,
        planner: str | None = None,
        action: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> RunPage:
        """A page of runs that fit all that is given, newest first: `mandor run list`. before: `next` of the last page.

        action: of any step; error: kind of one that the run ended with; since, until: when it was accepted, times with
        a time zone. NotFound: `before` is no run.
        """
        first, last = (None if at is None else round(at.timestamp() * 1000) for at in (since, until))
        wanted = RunFilter(None, status, session_id, planner, action, error, first, last)
        self._app  # noqa: B018  # the checks
        return listing.page(celery_app.ledger(), celery_app.store, limit, before, wanted)

    def why(self, run_id: str) -> Why:
        """What the run waits for, and what will move it on. NotFound: it was never accepted."""
        return waits.why(self._lookup(), celery_app.store(), run_id, self._settings)

    # ---- decisions: by whom (the user of this process, unless said), and why. They need no worker to be carried out.
    # StoreUnavailable: the decision is kept and carried out later. NotFound, DecisionRefused: nothing was decided.

    def cancel(self, run_id: str, *, by: str | None = None, reason: str | None = None) -> Decided:
        """End the run."""
        return decisions.cancel(self._desk, run_id, by or os_user(), reason)

    def pause(self, run_id: str, *, by: str | None = None, reason: str | None = None) -> Decided:
        """Start nothing more of it; what runs goes on, and so does the deadline."""
        return decisions.pause(self._desk, run_id, by or os_user(), reason)

    def resume(self, run_id: str, *, by: str | None = None, reason: str | None = None) -> Decided:
        """Let it go on."""
        return decisions.resume(self._desk, run_id, by or os_user(), reason)

    def retry(
        self,
        run_id: str,
        *,
        from_steps: Collection[str] = (),
        new_keys: Collection[str] = (),
        by: str | None = None,
        reason: str | None = None,
    ) -> Decided:
        """Start an ended run over, from what is completed.

        from_steps: these, and all that needs them, are done again although they are completed; an effect that has
        landed gives back its result. new_keys: those of them whose effect is to be had once more, under a new key.
        """
        again = Again(tuple(from_steps), tuple(new_keys))
        return decisions.retry(self._desk, run_id, by or os_user(), reason, again)

    def approve(
        self,
        run_id: str,
        step_id: str | None = None,
        *,
        allowed: bool = True,
        by: str | None = None,
        reason: str | None = None,
    ) -> Decided:
        """Let a step start that waits for approval, or (allowed False) refuse it."""
        return decisions.approve(self._desk, run_id, by or os_user(), reason, step_id, allowed=allowed)

    def resolve(
        self,
        run_id: str,
        step_id: str | None = None,
        *,
        landed: bool,
        result: Any = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Decided:
        """Say what became of a step in doubt."""
        return decisions.resolve(self._desk, run_id, by or os_user(), reason, step_id, landed=landed, result=result)

    # ---- dead letters

    def letters(
        self, *, limit: int = 50, before: str | None = None, wanted: LetterFilter = ANY_LETTER
    ) -> list[ListedLetter]:
        """Letters that fit all that is given, newest first, older than the letter `before`: `dlq list --each`."""
        return self._desk.ledger.triage.listed(limit, before, self._ours(wanted))

    def letter_groups(
        self, *, limit: int = 50, before: tuple[int, str] | None = None, wanted: LetterFilter = ANY_LETTER
    ) -> list[LetterGroup]:
        """Those that say the same together: `mandor dlq list`. before: `newest_at` and `fingerprint` of a group."""
        return self._desk.ledger.triage.groups(limit, before, self._ours(wanted))

    def letter(self, letter_id: str) -> DeadLetter:
        """One letter with all it holds. NotFound: there is none of this id."""
        return triage.find(self._desk, letter_id)

    def replay(
        self, letter_id: str, *, planner: str | None = None, by: str | None = None, reason: str | None = None
    ) -> Dealt:
        """Do again what the letter is about, once; `made` says whether by this call. planner: asked anew instead.

        DecisionRefused: it cannot be done, or was done otherwise. StoreUnavailable: it is kept and done later.
        """
        return triage.replay(self._desk, letter_id, by or os_user(), reason, Wish(planner=planner))

    def edit(
        self,
        letter_id: str,
        text: str,
        *,
        catalogue: Catalogue | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Dealt:
        """Replay a letter with this plan, or this submission as a JSON object, in place of what was refused.

        catalogue (`workers.registry.registry.catalogue()`): a plan is judged by it before anything is decided, and
        PayloadDrift says what is wrong; without one it is judged where the run is planned. SubmissionRefused likewise.
        """
        wish = Wish(edited=text, catalogue=catalogue)
        return triage.replay(self._desk, letter_id, by or os_user(), reason, wish)

    def drop(self, letter_id: str, reason: str, *, by: str | None = None) -> Dealt:
        """Say that nothing is to be done about it. DecisionRefused: somebody has dealt with it."""
        return triage.drop(self._desk, letter_id, by or os_user(), reason)

    def _ours(self, wanted: LetterFilter) -> LetterFilter:
        return replace(wanted, namespace=self._desk.store.keys.namespace)

    @property
    def _desk(self) -> Desk:
        return Desk(self._app, celery_app.store(), celery_app.ledger())

    def wait(self, run_id: str, timeout_s: float | None = None) -> RunView:
        """The run once it has ended and all letters about it are written, or NoAnswer when it has not within timeout_s.

        Asks the ledger, which is told of an end last, not Celery.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        pause = FIRST_LOOK_S
        lookup = self._lookup()
        while True:
            row = lookup.find(run_id)
            # the store knows first that a run was started over
            if row.ended_at and (view := lookup.run(run_id)).status in RUN_TERMINAL:
                return view
            if end is not None and time.monotonic() + pause > end:
                status = _status(lookup, row)
                raise NoAnswer(f"run {run_id} is {status} after {timeout_s:g} s", hint="`mandor run show` tells more")
            time.sleep(pause * random.uniform(0.75, 1.0))
            pause = min(pause * 1.5, LONGEST_LOOK_S)

    @property
    def _app(self) -> Any:
        if not self._checked:
            celery_app.check_client()
            self._checked = True
        return celery_app.app

    def _lookup(self) -> Lookup:
        self._app  # noqa: B018  # the checks
        return Lookup(celery_app.ledger(), celery_app.store())

    def _read(self, fields: dict[str, Any], task_id: str) -> str:
        read = submission.read(fields, self._settings)
        return run_id_for(FROM_BROKER, read.session_id, read.request_id or task_id)

    def _send(self, fields: dict[str, Any], task_id: str) -> Any:
        app = self._app
        try:
            return dispatch.send_submission(app, fields, task_id)
        except dispatch.broker_errors(app) as error:
            raise BrokerUnavailable(f"the broker did not take the submission: {error}", hint="is it running?") from None


def _status(lookup: Lookup, row: LedgerRun) -> str:
    state = lookup.state(row)
    return state.status if state else row.status
