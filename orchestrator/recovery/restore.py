"""What is done about a state store that forgot, or is another server: judged, waited for, built again, opened.

    judge     which shards are not the ones the ledger remembers (verdicts)
    wait      until holders of claims that nobody remembers have ended: two leases of silence and the stop grace
    begin     by one process, which takes the loss in the ledger, and the shard under a token: from here on each write
              asks whether the shard is still the one that was judged, and still this process's
    restore   close the effect rows of each open run, build it again, drop what has ended meanwhile
    accept    where nothing is missing: fences go on beyond all that were given before
    open      the loss is made good in the ledger; then the shard belongs to this server, and to our epoch

Until the last line no script does anything in the shard, so a restorer that dies is followed by one that begins anew. A
shard that is whole again, because its old server came back, is left alone. One of which a run could not be built stays
shut, and is tried again; that is nothing to the other shards.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

from orchestrator import dispatch, progress, submission
from orchestrator.dispatch import App
from orchestrator.errors import LedgerUnavailable, Superseded
from orchestrator.isolation import apart, raise_what_concerns_all
from orchestrator.ledger import EffectState, Kind, Ledger, LedgerRun
from orchestrator.ledger.engine import in_pages
from orchestrator.ledger.losses import STRIDE, ClosedRow, Loss, beyond
from orchestrator.recalled import Told
from orchestrator.recovery import rebuild, remembered, verdicts
from orchestrator.recovery.rebuild import Known
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.replies import Publish
from orchestrator.store.restoring import Place, Restored
from orchestrator.store.stream import BEGINNING
from orchestrator.telemetry import events, recovered
from orchestrator.telemetry.logs import bind, emit
from schemas.ids import RunRef
from schemas.states import RUN_TERMINAL, EffectClass, RunStatus

PAGE: Final = 200
AGAIN_MS: Final = 15_000  # until what could not be made good is tried again
MARGIN_MS: Final = 1000  # the watcher of leases looks four times a second
MOST_FAILED: Final = 20  # runs of a shut shard, after which no more are tried for now
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
    runs that go on as they were with fences ahead, runs that cannot be built, runs that met an error."""

    restored: int = 0
    dropped: int = 0
    ended: int = 0
    accepted: int = 0
    refused: int = 0
    failed: int = 0

    def __add__(self, other: "Report") -> "Report":
        mine, theirs = asdict(self), asdict(other)
        return Report(**{name: mine[name] + theirs[name] for name in mine})


Pages = Callable[[str | None, int, str], list[RunRef]]  # behind a run, so many, of a namespace


def _refs_in(site: Site, shard: int, pages: Pages) -> Iterator[list[RunRef]]:
    """Those of one shard, by name."""
    after: str | None = None
    while page := pages(after, PAGE, site.settings.namespace):
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
    """See to a loss, if its time has come and nobody else does. None: not now, or not this one. Where runs have failed
    it is tried again later."""
    facts = site.store.admin.shard(loss.shard)
    state = verdicts.state_of(site.store.scripts.epoch, facts)
    if state is None and loss.cause != RUNS and not loss.era:
        site.ledger.losses.withdraw(loss, json.dumps(asdict(Report())))
        return None
    if state == verdicts.FOREIGN or (loss.server != facts.our_server and state is not None):
        return None  # it is going to be noted as what it is now, or is not ours
    held = site.ledger.losses.claim(loss, site.holder)
    if held is None:
        return None
    report: Report | None = Report(failed=1)
    try:
        report = _take_in_hand(site, held, facts.our_server, whole=state is None)
    except Superseded:
        report = None
    finally:
        _release(site, held, report)
    return report


def _release(site: Site, held: Loss, report: Report | None) -> None:
    """What is not made good is anybody's: at once, or after a while where runs met errors."""
    if report is not None and report.failed:
        site.ledger.losses.release(held, AGAIN_MS, json.dumps(asdict(report)))
    else:
        site.ledger.losses.release(held)


def _take_in_hand(site: Site, held: Loss, server: str, *, whole: bool) -> Report | None:
    if whole:
        place = Place(server, "")
        if held.cause == RUNS and held.server == server:
            return _finish(site, held, place, *_restore_runs(site, held, place))
        # whoever began may have closed effect rows of runs that live on
        return _finish(site, held, place, _all_go_ahead(site, held, place))
    place = Place(server, str(held.token))
    cursors = site.ledger.history.cursors(site.settings.namespace)
    site.store.restoring.begin(held.shard, place, held.cause, cursors.get(held.shard, BEGINNING))
    if held.cause == "moved":
        return _accept(site, held, place)
    total, messages = _restore_runs(site, held, place)
    total += Report(dropped=_drop_ended(site, held, place))
    total += _go_ahead(site, held, place, site.ledger.reopening_refs)
    return _finish(site, held, place, total, messages)


def _drop_ended(site: Site, held: Loss, place: Place) -> int:
    dropped = 0
    for page in in_pages(site.store.admin.live_runs(held.shard)):
        site.ledger.losses.keep(held)
        ended = list(verdicts.have_ended(site.ledger, site.store, page))
        dropped += sum(site.store.restoring.drop_run(ref, place) for ref in ended)
    return dropped


def _finish(site: Site, held: Loss, place: Place, total: Report, messages: Publish = ()) -> Report | None:
    """The loss is made good; then the shard is used, and what it wants sent is sent.

    Not so where runs met errors: that shard stays as it is. In one that was whole the audit misses them again.
    """
    if place.token and total.failed:
        emit(recovered.MemoryNotRestored(held.shard, total.failed))
        return total
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
    keep = partial(site.ledger.losses.keep, held)
    if verdicts.behind(site.ledger, site.store, site.settings.namespace, [held.shard], keep):
        note(site, held.shard, "behind", held.server)
        return None
    done = _finish(site, held, place, _all_go_ahead(site, held, place))
    if done is not None and not done.failed:
        for page in _refs_in(site, held.shard, site.ledger.open_refs):
            for ref in page:
                with apart(site.ledger, ref.run_id, []):
                    _mend(site, ref)
    return done


def _all_go_ahead(site: Site, held: Loss, place: Place) -> Report:
    """All open runs, and those that may have been opened again of which the ledger has not heard."""
    return _go_ahead(site, held, place, site.ledger.open_refs) + _go_ahead(
        site, held, place, site.ledger.reopening_refs
    )


def _go_ahead(site: Site, held: Loss, place: Place, pages: Pages) -> Report:
    """Fences of these runs go on beyond any that were given or closed; late decisions are asked again."""
    accepted, failed = 0, list[Exception]()
    for page in _refs_in(site, held.shard, pages):
        site.ledger.losses.keep(held)
        ids = [ref.run_id for ref in page]
        closed = site.ledger.losses.fences(ids)
        for ref in page:
            least = beyond(held.era, closed.get(ref.run_id, 0))
            with apart(site.ledger, ref.run_id, failed):
                accepted += site.store.restoring.accept_run(ref, place, STRIDE, least)
            if _is_hopeless(failed, place):
                return Report(failed=len(failed))
        site.ledger.losses.ask_again(ids)
    return Report(accepted=accepted, failed=len(failed))


def _mend(site: Site, ref: RunRef) -> None:
    """A run that the store does not have was never planned: it is created. Others are put where supervisors look."""
    if site.store.views.run(ref) is not None:
        site.store.restoring.mend_due(ref)
    elif (run := site.ledger.run(ref.run_id)) is not None and run.ended_at is None:
        site.store.runs.create_run(ref, submission.to_create(run, site.settings))


# ---- restore


def _restore_runs(site: Site, held: Loss, place: Place) -> tuple[Report, Publish]:
    total, messages, failed = Report(), list[Publish](), list[Exception]()
    for run in _to_restore(site, held):
        with apart(site.ledger, run.run_id, failed):
            done, publish = _restore_run(site, held, place, run)
            total += done
            messages.append(publish)
        if _is_hopeless(failed, place):
            break
    total += Report(failed=len(failed))
    return total, tuple(message for publish in messages for message in publish)[:MOST_MESSAGES]


def _is_hopeless(failed: list[Exception], place: Place) -> bool:
    """Whether to go on is for nothing: a database of a user's own is away, and each run that asks it would wait as
    long; or the shard stays shut in any case, and so many have failed that it is not about them."""
    away = any(isinstance(error, LedgerUnavailable) for error in failed)
    return away or (place.token != "" and len(failed) >= MOST_FAILED)


def _to_restore(site: Site, held: Loss) -> Iterator[LedgerRun]:
    for page in _refs_in(site, held.shard, site.ledger.open_refs):
        site.ledger.losses.keep(held)
        rows = [run for ref in page if (run := site.ledger.run(ref.run_id)) is not None and run.ended_at is None]
        yield from verdicts.lost_of(site.ledger, site.store, rows) if held.cause == RUNS else rows


def _restore_run(site: Site, held: Loss, place: Place, run: LedgerRun) -> tuple[Report, Publish]:
    if held.cause == RUNS and not verdicts.lost_of(site.ledger, site.store, [run]):
        return Report(), ()  # it came back meanwhile, and what closed its rows would keep it out of them
    known = remembered.known(site.store, site.ledger, site.settings, run)
    if known is None:
        emit(recovered.RunNotRestored())
        return Report(refused=1), ()
    if _brought_to_its_end(site, known):
        return Report(ended=1), ()
    site.store.restoring.must_hold(held.shard, place)
    wanted = rebuild.rows_to_close(known)
    fence, rows = site.ledger.losses.close_rows(held, run.run_id, wanted, known.fence)
    rows |= _landed_elsewhere(site, held, known, wanted, fence)
    ttl_ms = round(site.settings.finished_ttl_s * 1000)
    made = rebuild.rebuilt(known, held.era, fence, rows, site.store.now_ms(), ttl_ms)
    site.ledger.losses.ask_again([run.run_id])
    ref = RunRef(run.run_id, run.session)
    steps = [step.words() for step in made.steps]
    reply = site.store.restoring.restore_run(ref, place, made.stage, made.fence, made.heard, made.fields, steps)
    if not isinstance(reply, Restored):
        return _as_it_is(site, place, ref, fence), ()
    if reply.open and made.stage == "running":
        dispatch.open_chord(site.app, ref, reply.generation, reply.open)
    return Report(restored=1), reply.publish


def _as_it_is(site: Site, place: Place, ref: RunRef, fence: int) -> Report:
    """A run that was there all the same. In a whole shard it goes on, beyond the fence that its rows were closed to."""
    return Report(accepted=int(not place.token and site.store.restoring.accept_run(ref, place, STRIDE, fence)))


def _landed_elsewhere(
    site: Site, held: Loss, known: Known, wanted: list[tuple[str, Kind]], fence: int
) -> dict[tuple[str, str], ClosedRow]:
    """Of transactional steps, what has landed in databases of the users' own, which are closed up to the fence too."""
    if not site.ledger.transactional.elsewhere or known.plan is None:
        return {}
    there = {step.id for step in known.plan.steps if step.effect == EffectClass.TRANSACTIONAL}
    asked = [(step_id, kind) for step_id, kind in wanted if step_id in there]
    landed: dict[tuple[str, str], ClosedRow] = {}
    for page in in_pages(asked):
        site.ledger.losses.keep(held)
        for name, kind in page:
            row = site.ledger.transactional.close(known.row.run_id, name, kind, fence)
            if row.state is EffectState.LANDED:
                landed[name, kind] = ClosedRow(row.state, row.result_text)
    return landed


def can_be_built(site: Site, run: LedgerRun) -> bool:
    """Whether enough is known of a run. One of which it is not is told of, and left to people."""
    with apart(site.ledger, run.run_id, []):
        if remembered.known(site.store, site.ledger, site.settings, run) is not None:
            return True
        emit(recovered.RunNotRestored())
    return False


def _brought_to_its_end(site: Site, known: Known) -> bool:
    """A run that was heard to have ended, and whose end the ledger was still to be told, is not built again."""
    generation, version = known.standing
    fields, row = known.fields, known.row
    status, reason = fields.get("status", ""), fields.get("reason", "")
    if status not in RUN_TERMINAL or generation != row.generation:
        return False
    ref, told = RunRef(row.run_id, row.session), Told(site.ledger)
    progress.write_owed_letters(site.app, told, site.ledger, ref, RunStatus(status), generation)
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
    """Bring all shards on as far as that can be done now, each for itself. Answers the losses that are still to be made
    good. ConfigError, when all that is done: a shard is somebody else's."""
    losses = site.ledger.losses
    known = {loss.shard: loss for loss in losses.open(site.settings.namespace)}
    server, states = site.store.scripts.server(), verdicts.states(site.store)
    for shard, state in states.items():
        if state != verdicts.FOREIGN and not _is_known(known.get(shard), state, server):
            note(site, shard, state, server)
    for loss in losses.open(site.settings.namespace):
        _see_to(site, loss)
    verdicts.refuse_foreign(states)
    return losses.open(site.settings.namespace)


def _see_to(site: Site, loss: Loss) -> None:
    try:
        make_good(site, loss)
    except Exception as error:  # noqa: BLE001  # whatever one shard is met with, the others have their turn
        raise_what_concerns_all(site.ledger, error)
        emit(recovered.MemoryNotRestored(loss.shard, 0, events.kind(error), events.where(error)))


def has_failed(loss: Loss) -> bool:
    """Whether it was tried to make a loss good, in vain; it is tried again."""
    return loss.done_at is None and loss.report_text is not None


def _is_known(loss: Loss | None, state: str, server: str) -> bool:
    """Whether a loss says already what was seen. One that was found to be behind looks as if it had only moved."""
    return (
        loss is not None
        and loss.server == server
        and (loss.cause == state or (loss.cause, state) == ("behind", "moved"))
    )
