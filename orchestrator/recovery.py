"""What is done about a state store that forgot, or is another server: judged, waited for, built again, opened.

    judge     which shards are not the ones the ledger remembers (orchestrator.verdicts)
    wait      until holders of claims that nobody remembers have ended: two leases of silence and the stop grace
    begin     by one process, which takes the loss in the ledger, and the shard under a token: from here on each write
              asks whether the shard is still the one that was judged, and still this process's
    restore   close the effect rows of each open run, build it again, drop what has ended meanwhile
    accept    where nothing is missing: fences go on beyond all that were given before
    open      the loss is made good in the ledger; then the shard belongs to this server, and to our epoch

Until the last line no script does anything in the shard, so a restorer that dies is followed by one that begins anew. A
shard that is whole again, because its old server came back, is left alone.
"""

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Final

from orchestrator import dispatch, progress, rebuild, startover, submission, verdicts
from orchestrator.dispatch import App
from orchestrator.errors import Superseded
from orchestrator.ledger import EffectState, Kind, Ledger, LedgerRun
from orchestrator.ledger.history import StepReport
from orchestrator.ledger.losses import STRIDE, ClosedRow, Loss, beyond
from orchestrator.rebuild import Known
from orchestrator.settings import Settings
from orchestrator.startover import Again
from orchestrator.store import Store
from orchestrator.store.new import plan_from_text
from orchestrator.store.replies import Publish
from orchestrator.store.restoring import Place, Restored
from orchestrator.store.stream import BEGINNING
from orchestrator.telemetry import events, recovered
from orchestrator.telemetry.logs import bind, emit, identity
from schemas.ids import RunRef
from schemas.states import RUN_TERMINAL, EffectClass, RunStatus, StepStatus

PAGE: Final = 200
MARGIN_MS: Final = 1000  # the watcher of leases looks four times a second
MOST_MESSAGES: Final = 10_000  # that are sent at once; more are due, and sent by a supervisor
RUNS: Final = "runs"  # the cause of a loss of single runs, in a shard that is whole otherwise


@dataclass(frozen=True)
class Site:
    """The services that recovery needs. holder: names this process, for people to read."""

    app: App
    store: Store
    ledger: Ledger
    settings: Settings
    holder: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was done about a loss: runs built again, runs dropped because they had ended, ends brought to the ledger,
    runs that go on as they were with fences ahead, runs that cannot be built."""

    restored: int = 0
    dropped: int = 0
    ended: int = 0
    accepted: int = 0
    refused: int = 0

    def __add__(self, other: "Report") -> "Report":
        mine, theirs = asdict(self), asdict(other)
        return Report(**{name: mine[name] + theirs[name] for name in mine})


def _refs_in(site: Site, shard: int) -> Iterator[list[RunRef]]:
    """Those of one shard, by name."""
    after: str | None = None
    while page := site.ledger.open_refs(after, PAGE, site.settings.namespace):
        yield [ref for ref in page if site.store.keys.shard_of(ref.run_id) == shard]
        after = page[-1].run_id


# ---- wait


def note(site: Site, shard: int, cause: str, server: str) -> Loss:
    """Write a loss down, and from when it may be made good. One that is known is neither waited for nor told anew."""
    wait_ms = 0 if cause == "moved" else _wait_ms(site)
    loss = site.ledger.losses.found(site.settings.namespace, shard, cause, server, wait_ms)
    if cause != "moved":
        emit(recovered.MemoryLost(shard, cause, max(0, loss.lease_until - site.ledger.now_ms())))
    return loss


def _wait_ms(site: Site) -> int:
    """Until the last holder of a claim in any run has ended, who hears nothing from the store."""
    given = site.settings
    usual = rebuild.silence_ms(round(given.lease_s * 1000), round(given.stop_grace_s * 1000))
    return max(usual, site.ledger.history.longest_silence_ms(given.namespace)) + MARGIN_MS


# ---- take a loss in hand


def make_good(site: Site, loss: Loss) -> Report | None:
    """See to a loss, if its time has come and nobody else does. None: not now, or not this one."""
    facts = site.store.admin.shard(loss.shard)
    whole = verdicts.state_of(site.store.scripts.epoch, loss.shard, facts) is None
    if whole and loss.cause != RUNS and not loss.era:
        site.ledger.losses.withdraw(loss, json.dumps(asdict(Report())))
        return None
    if loss.server != facts.our_server and not whole:
        return None  # it is going to be noted as what it is now
    held = site.ledger.losses.claim(loss, site.holder)
    if held is None:
        return None
    try:
        return _take_in_hand(site, held, facts.our_server, whole)
    except Superseded:
        return None
    finally:
        site.ledger.losses.release(held)


def _take_in_hand(site: Site, held: Loss, server: str, whole: bool) -> Report | None:
    if whole:
        place = Place(server, "")
        if held.cause == RUNS and held.server == server:
            return _finish(site, held, place, *_restore_runs(site, held, place))
        # whoever began may have closed effect rows of runs that live on
        return _finish(site, held, place, _go_ahead(site, held, place))
    place = Place(server, str(held.token))
    cursors = site.ledger.history.cursors(site.settings.namespace)
    site.store.restoring.begin(held.shard, place, held.cause, cursors.get(held.shard, BEGINNING))
    if held.cause == "moved":
        return _accept(site, held, place)
    total, messages = _restore_runs(site, held, place)
    ended = list(verdicts.have_ended(site.ledger, site.store, held.shard))
    total += Report(dropped=sum(site.store.restoring.drop_run(ref, place) for ref in ended))
    return _finish(site, held, place, total, messages)


def _finish(site: Site, held: Loss, place: Place, total: Report, messages: Publish = ()) -> Report | None:
    """The loss is made good; then the shard is used, and what it wants sent is sent."""
    if not site.ledger.losses.done(held, json.dumps(asdict(total))):
        return None
    if place.token:
        site.store.restoring.open_shard(held.shard, place)
    dispatch.publish(site.app, messages)
    if held.cause == "moved":
        emit(recovered.ServerAccepted(held.shard, total.accepted))
    else:
        emit(recovered.MemoryRestored(held.shard, held.cause, total.restored, total.dropped))
    return total


# ---- accept


def accept(site: Site, shard: int) -> Report | None:
    """Take over a shard on another server that has all of it. None: it is not so, or somebody else does."""
    return make_good(site, note(site, shard, "moved", site.store.scripts.server()))


def _accept(site: Site, held: Loss, place: Place) -> Report | None:
    """Another server that has all that the ledger knows: it belongs to the shard from now on. Else that is behind."""
    if verdicts.behind(site.ledger, site.store, site.settings.namespace, [held.shard]):
        note(site, held.shard, "behind", held.server)
        return None
    done = _finish(site, held, place, _go_ahead(site, held, place))
    if done is not None:
        for page in _refs_in(site, held.shard):
            for ref in page:
                _mend(site, ref)
    return done


def _go_ahead(site: Site, held: Loss, place: Place) -> Report:
    """Fences of all open runs go on beyond any that were given or closed; late decisions are asked again."""
    accepted = 0
    for page in _refs_in(site, held.shard):
        ids = [ref.run_id for ref in page]
        closed = site.ledger.losses.fences(ids)
        for ref in page:
            least = beyond(held.era, closed.get(ref.run_id, 0))
            accepted += site.store.restoring.accept_run(ref, place, STRIDE, least)
        site.ledger.losses.ask_again(ids)
    return Report(accepted=accepted)


def _mend(site: Site, ref: RunRef) -> None:
    """A run that the store does not have was never planned: it is created. Others are put where supervisors look."""
    if site.store.views.run(ref) is not None:
        site.store.restoring.mend_due(ref)
    elif (run := site.ledger.run(ref.run_id)) is not None and run.ended_at is None:
        site.store.runs.create_run(ref, submission.to_create(run, site.settings))


# ---- restore


def _restore_runs(site: Site, held: Loss, place: Place) -> tuple[Report, Publish]:
    total, messages = Report(), list[Publish]()
    for page in _refs_in(site, held.shard):
        rows = [run for ref in page if (run := site.ledger.run(ref.run_id)) is not None and run.ended_at is None]
        for run in lost_of(site, rows) if held.cause == RUNS else rows:
            with identity(run_id=run.run_id):
                done, publish = _restore_run(site, held, place, run)
            total += done
            messages.append(publish)
    return total, tuple(message for publish in messages for message in publish)[:MOST_MESSAGES]


def lost_of(site: Site, runs: list[LedgerRun]) -> list[LedgerRun]:
    """Of these runs, those that the store does not have, or has begun anew."""
    behind = {run.run_id for run in verdicts.runs_behind(site.ledger, site.store, runs)}
    return [
        run for run in runs if run.run_id in behind or site.store.views.run(RunRef(run.run_id, run.session)) is None
    ]


def _restore_run(site: Site, held: Loss, place: Place, run: LedgerRun) -> tuple[Report, Publish]:
    known = _known(site, run)
    if known is None:
        emit(recovered.RunNotRestored())
        return Report(refused=1), ()
    if _brought_to_its_end(site, known):
        return Report(ended=1), ()
    site.store.restoring.must_hold(held.shard, place)
    wanted = rebuild.rows_to_close(known)
    fence, rows = site.ledger.losses.close_rows(held, run.run_id, wanted, known.fence)
    rows |= _landed_elsewhere(site, known, wanted, fence)
    ttl_ms = round(site.settings.finished_ttl_s * 1000)
    made = rebuild.rebuilt(known, held.era, fence, rows, site.store.now_ms(), ttl_ms)
    site.ledger.losses.ask_again([run.run_id])
    ref = RunRef(run.run_id, run.session)
    steps = [step.words() for step in made.steps]
    reply = site.store.restoring.restore_run(ref, place, made.stage, made.fence, made.heard, made.fields, steps)
    if not isinstance(reply, Restored):
        return Report(), ()
    if reply.open and made.stage == "running":
        dispatch.open_chord(site.app, ref, reply.generation, reply.open)
    return Report(restored=1), reply.publish


def _landed_elsewhere(
    site: Site, known: Known, wanted: list[tuple[str, Kind]], fence: int
) -> dict[tuple[str, str], ClosedRow]:
    """Of transactional steps, what has landed in databases of the users' own, which are closed up to the fence too."""
    if not site.ledger.transactional.elsewhere or known.plan is None:
        return {}
    there = {step.id for step in known.plan.steps if step.effect == EffectClass.TRANSACTIONAL}
    asked = [(step_id, kind) for step_id, kind in wanted if step_id in there]
    closed = {
        (name, kind): site.ledger.transactional.close(known.row.run_id, name, kind, fence) for name, kind in asked
    }
    return {
        key: ClosedRow(row.state, row.result_text) for key, row in closed.items() if row.state is EffectState.LANDED
    }


def can_be_built(site: Site, run: LedgerRun) -> bool:
    """Whether enough is known of a run. One of which it is not is told of, and left to people."""
    if _known(site, run) is not None:
        return True
    with identity(run_id=run.run_id):
        emit(recovered.RunNotRestored())
    return False


def _known(site: Site, run: LedgerRun) -> Known | None:
    """What the ledger has heard of a run, or the store has of it, if that is newer. None: not enough to build it."""
    text = site.ledger.history.admitted_plan(run.run_id, run.generation)
    plan = plan_from_text(text) if text else None
    blank = Known(run, submission.to_create(run, site.settings), plan)
    heard, seen = _heard(site, blank), _seen(site, blank)
    newest = max((heard, seen), key=lambda one: one.standing)
    known = rebuild.of_this_generation(newest, _ordered(site, run, newest.standing[0]))
    if plan is not None or run.plan_hash is None:
        return known
    stored = site.ledger.plan(run.run_id, run.generation)
    return rebuild.planned_anew(known, stored.plan_text if stored else None)


def _ordered(site: Site, run: LedgerRun, heard_generation: int) -> list[Again]:
    """What was to be done again each time that the run was started over since it was heard of."""
    if heard_generation >= run.generation:
        return []
    made = site.ledger.decisions_of(run.run_id)
    since = (one for one in made if one.kind == "retry" and heard_generation <= one.generation < run.generation)
    return [startover.wanted(one.details_text) for one in since if (one.outcome or "retried").startswith("retried")]


def _heard(site: Site, blank: Known) -> Known:
    history, run_id = site.ledger.history, blank.row.run_id
    report, steps = history.run(run_id), history.steps(run_id)
    if report is None:
        return blank
    return replace(
        blank,
        fields=report.fields(),
        records={name: json.loads(step.record_text) for name, step in steps.items()},
        results={name: text for name, step in steps.items() if (text := _result(step)) is not None},
        errors={name: step.error_text for name, step in steps.items() if step.error_text},
    )


def _result(step: StepReport) -> str | None:
    done = (StepStatus.COMPLETED, StepStatus.COMPENSATING, StepStatus.COMPENSATED)
    return step.result_text if step.status in done else None


def _seen(site: Site, blank: Known) -> Known:
    seen = site.store.restoring.remains(RunRef(blank.row.run_id, blank.row.session))
    if seen is None or "version" not in seen.fields:
        return blank
    records = {name: json.loads(text) for name, text in seen.steps.items()}
    return replace(blank, fields=seen.fields, records=records, results=seen.results, errors=seen.errors)


def _brought_to_its_end(site: Site, known: Known) -> bool:
    """A run that was heard to have ended, and whose end the ledger was still to be told, is not built again."""
    generation, version = known.standing
    fields, row = known.fields, known.row
    status, reason = fields.get("status", ""), fields.get("reason", "")
    if status not in RUN_TERMINAL or generation != row.generation:
        return False
    errors = progress.kinds_of([*known.errors.values(), fields.get("error")])
    end = (RunStatus(status), reason or None, version, int(fields["ended_at"]), errors)
    if site.ledger.end_run(row.run_id, generation, *end):
        bind(request_id=row.request_id, session_id=row.session_id, policy_hash=row.policy_hash, state_version=version)
        emit(events.RunSettled(status, reason))
    return True


# ---- what a supervisor, or a person, calls


def this_process() -> str:
    """Who sees to a loss, as people are told."""
    return f"{socket.gethostname()}:{os.getpid()}"


def recover(site: Site) -> list[Loss]:
    """Bring all shards on as far as that can be done now. Answers the losses that are still to be made good."""
    losses = site.ledger.losses
    known = {loss.shard: loss for loss in losses.open(site.settings.namespace)}
    server = site.store.scripts.server()
    for shard, state in verdicts.suspicious(site.store).items():
        if not _is_known(known.get(shard), state, server):
            note(site, shard, state, server)
    for loss in losses.open(site.settings.namespace):
        make_good(site, loss)
    return losses.open(site.settings.namespace)


def _is_known(loss: Loss | None, state: str, server: str) -> bool:
    """Whether a loss says already what was seen. One that was found to be behind looks as if it had only moved."""
    return (
        loss is not None
        and loss.server == server
        and (loss.cause == state or (loss.cause, state) == ("behind", "moved"))
    )
