"""What is done about a state store that forgot: judged, waited for, built again from the ledger, opened.

    judge     which shards are not the ones the ledger remembers: amnesia (nothing there), behind (another server, and
              less there than the ledger knows), or moved (another server, and all is there)
    wait      until holders of claims that nobody remembers have ended: two leases of silence and the stop grace
    restore   by one process: close the effect rows of each open run, build it again, drop what has ended meanwhile
    open      the loss is made good in the ledger; then the shard belongs to this server, and to our epoch

Until the last line no script does anything in the shard, so a restorer that dies is followed by one that begins anew.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Final

from orchestrator import dispatch, rebuild, submission
from orchestrator.dispatch import App
from orchestrator.errors import ConfigError
from orchestrator.ledger import EffectState, Kind, Ledger, LedgerRun
from orchestrator.ledger.history import StepReport
from orchestrator.ledger.losses import ClosedRow, Loss
from orchestrator.rebuild import STRIDE, Known
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.admin import ShardFacts
from orchestrator.store.new import plan_from_text
from orchestrator.store.replies import Publish
from orchestrator.store.restoring import Restored
from orchestrator.store.stream import BEGINNING, position
from orchestrator.telemetry import recovered
from orchestrator.telemetry.logs import emit, identity
from schemas.ids import RunRef
from schemas.policy import Policy
from schemas.states import RUN_TERMINAL, EffectClass, RunStatus, StepStatus

PAGE: Final = 200
MARGIN_MS: Final = 1000  # the watcher of leases looks four times a second
REMEMBERED_MS: Final = 60_000  # decisions carried out within so long before a run was last heard of are asked again
UNMOVED: Final = frozenset({"pending", "waiting_approval", "ready", "dispatched", "backoff", "skipped"})


@dataclass(frozen=True)
class Site:
    """The services that recovery needs. holder: names this process."""

    app: App
    store: Store
    ledger: Ledger
    settings: Settings
    holder: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was done about a loss: runs built again, runs dropped because they had ended, ends brought to the ledger."""

    restored: int = 0
    dropped: int = 0
    ended: int = 0

    def __add__(self, other: "Report") -> "Report":
        return Report(self.restored + other.restored, self.dropped + other.dropped, self.ended + other.ended)


# ---- judge


def judged(ledger: Ledger, store: Store, namespace: str) -> dict[int, str]:
    """Shards that are not ours as they are: moved, behind or amnesia. ConfigError: one is somebody else's."""
    found = {shard: state for shard, facts in store.admin.shards().items() if (state := _state(store, shard, facts))}
    moved = [shard for shard, state in found.items() if state == "moved"]
    if moved:
        found |= dict.fromkeys(_behind(ledger, store, namespace, moved), "behind")
    return found


def _state(store: Store, shard: int, facts: ShardFacts) -> str | None:
    if facts.epoch is None:
        return "amnesia"
    if facts.epoch != store.scripts.epoch:
        raise ConfigError(
            f"shard {shard} belongs to another installation",
            path="MANDOR_NAMESPACE",
            hint="two installations share this server, or its data is an old copy: use another namespace or server",
        )
    return None if facts.server == facts.our_server else "moved"


def _behind(ledger: Ledger, store: Store, namespace: str, moved: list[int]) -> set[int]:
    """Of these shards, those that hold less than the ledger knows."""
    cursors = ledger.history.cursors(namespace)
    found = {
        shard for shard in moved if position(store.stream.last_id(shard)) < position(cursors.get(shard, BEGINNING))
    }
    for page in open_runs(ledger):
        here = [run for run in page if store.keys.shard_of(run.run_id) in set(moved) - found]
        found |= {store.keys.shard_of(run.run_id) for run in _runs_behind(ledger, store, here)}
    return found | {shard for shard in set(moved) - found if any(_has_ended(ledger, store, shard))}


def _runs_behind(ledger: Ledger, store: Store, runs: list[LedgerRun]) -> Iterator[LedgerRun]:
    """Runs of which the store has less than was heard before, or less than the effect rows say."""
    ids = [run.run_id for run in runs]
    standings, begun = ledger.history.standings(ids), ledger.losses.effects_beyond(ids)
    for run in runs:
        ref = RunRef(run.run_id, run.session)
        state = store.views.run(ref)
        if state is None:
            behind = run.plan_hash is not None or run.run_id in standings
        else:
            older = (state.generation, state.version) < standings.get(run.run_id, (run.generation, 0))
            not_undoing = run.status == RunStatus.COMPENSATING and state.status == RunStatus.RUNNING
            behind = older or not_undoing or _effects_unknown(store, ref, begun.get(run.run_id, set()))
        if behind:
            yield run


def _effects_unknown(store: Store, ref: RunRef, begun: set[str]) -> bool:
    """Whether an effect began of a step that the store believes untouched."""
    records = store.views.records(ref, sorted(begun)) if begun else []
    return len(records) < len(begun) or any(one.status in UNMOVED and not one.touched for one in records)


def _has_ended(ledger: Ledger, store: Store, shard: int) -> Iterator[RunRef]:
    """Runs that are under way here, and have ended in the ledger."""
    for ref in store.admin.live_runs(shard):
        row, state = ledger.run(ref.run_id), store.views.run(ref)
        if row is None or row.ended_at is None or state is None:
            continue
        if state.status not in RUN_TERMINAL and state.generation <= row.generation:
            yield ref


def open_runs(ledger: Ledger) -> Iterator[list[LedgerRun]]:
    """All runs without an end, in pages."""
    after: str | None = None
    while page := ledger.open_runs(after, PAGE):
        yield page
        after = page[-1].run_id


# ---- wait


def note(site: Site, shard: int, cause: str) -> Loss:
    """Write a loss down, and from when it may be made good."""
    wait_ms = 2 * _longest_lease_ms(site, shard) + _longest_grace_ms(site, shard) + MARGIN_MS
    loss = site.ledger.losses.found(site.settings.namespace, shard, cause, wait_ms)
    if loss.holder is None:
        emit(recovered.MemoryLost(shard, cause, max(0, loss.lease_until - site.ledger.now_ms())))
    return loss


def _longest_lease_ms(site: Site, shard: int) -> int:
    plans = (site.ledger.history.admitted_plan(run.run_id, run.generation) for run in _runs_of(site, shard))
    leases = (step.lease_ms for text in plans if text for step in plan_from_text(text).steps)
    return max(leases, default=0) or round(site.settings.lease_s * 1000)


def _longest_grace_ms(site: Site, shard: int) -> int:
    graces = (Policy.model_validate_json(run.policy_text).stop_grace_s for run in _runs_of(site, shard))
    return round(max(graces, default=0) * 1000)


def _runs_of(site: Site, shard: int) -> Iterator[LedgerRun]:
    for page in open_runs(site.ledger):
        yield from (run for run in page if site.store.keys.shard_of(run.run_id) == shard)


# ---- restore


def make_good(site: Site, loss: Loss) -> Report | None:
    """Build a shard again, if its time has come and nobody else does. None: not now."""
    if not site.ledger.losses.claim(loss, site.holder):
        return None
    if loss.cause != "runs":
        cursors = site.ledger.history.cursors(site.settings.namespace)
        site.store.stream.go_on_behind(loss.shard, cursors.get(loss.shard, BEGINNING))
    total, messages = _restore_runs(site, loss)
    if loss.cause != "runs":
        ended = list(_has_ended(site.ledger, site.store, loss.shard))
        total += Report(dropped=sum(site.store.restoring.drop_run(ref) for ref in ended))
    if not site.ledger.losses.done(loss, site.holder, json.dumps(asdict(total))):
        return None
    if loss.cause != "runs":
        site.store.admin.open_shard(loss.shard)
    dispatch.publish(site.app, messages)
    emit(recovered.MemoryRestored(loss.shard, loss.cause, total.restored, total.dropped))
    return total


def _restore_runs(site: Site, loss: Loss) -> tuple[Report, Publish]:
    total, messages = Report(), list[Publish]()
    for run in _runs_of(site, loss.shard):
        ref = RunRef(run.run_id, run.session)
        if loss.cause == "runs" and site.store.views.run(ref) is not None:
            continue
        with identity(run_id=run.run_id):
            done, publish = _restore_run(site, loss, run)
        total += done
        messages.append(publish)
    return total, tuple(message for publish in messages for message in publish)


def _restore_run(site: Site, loss: Loss, run: LedgerRun) -> tuple[Report, Publish]:
    known = _known(site, run)
    if _brought_to_its_end(site, known):
        return Report(ended=1), ()
    wanted = rebuild.rows_to_close(known)
    fence, rows = site.ledger.losses.close_rows(loss, site.holder, run.run_id, wanted, known.fence, STRIDE)
    rows |= _landed_elsewhere(site, known, wanted, fence)
    ttl_ms = round(site.settings.finished_ttl_s * 1000)
    made = rebuild.rebuilt(known, fence, rows, site.store.now_ms(), ttl_ms)
    site.ledger.losses.ask_again(run.run_id, run.generation, site.ledger.history.heard_at(run.run_id) - REMEMBERED_MS)
    ref = RunRef(run.run_id, run.session)
    steps = [step.words() for step in made.steps]
    reply = site.store.restoring.restore_run(ref, made.stage, made.fence, made.fields, steps)
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


def _known(site: Site, run: LedgerRun) -> Known:
    """What the ledger has heard of a run, or what the store has of it, if that is newer."""
    text = site.ledger.history.admitted_plan(run.run_id, run.generation)
    plan = plan_from_text(text) if text else None
    blank = Known(run, submission.to_create(run, site.settings), plan)
    heard, seen = _heard(site, blank), _seen(site, blank)
    return rebuild.of_this_generation(max((heard, seen), key=lambda one: one.standing))


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
    status = known.fields.get("status")
    if status not in RUN_TERMINAL or generation != known.row.generation:
        return False
    end = (RunStatus(status), known.fields.get("reason") or None, version, int(known.fields["ended_at"]))
    site.ledger.end_run(known.row.run_id, generation, *end)
    return True


# ---- what a supervisor, or a person, calls


def recover(site: Site) -> list[Loss]:
    """Bring all shards on as far as that can be done now. Answers the losses that are still to be made good."""
    states = judged(site.ledger, site.store, site.settings.namespace)
    for shard, state in states.items():
        if state == "moved":
            accept(site, shard)
        else:
            note(site, shard, state)
    for loss in site.ledger.losses.open(site.settings.namespace):
        make_good(site, loss)
    return site.ledger.losses.open(site.settings.namespace)


def accept(site: Site, shard: int) -> None:
    """Another server that has all that the ledger knows: fences go ahead, and it belongs to the shard from now on."""
    runs = list(_runs_of(site, shard))
    fences = site.store.admin.accept_server(shard, [RunRef(run.run_id, run.session) for run in runs])
    emit(recovered.ServerAccepted(shard, fences))
    for run in runs:
        ref = RunRef(run.run_id, run.session)
        if site.store.views.run(ref) is None:
            site.store.runs.create_run(ref, submission.to_create(run, site.settings))
        else:
            site.store.restoring.mend_due(ref)
