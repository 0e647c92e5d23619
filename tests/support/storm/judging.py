"""What came of a storm: by the fault kit's invariants, by what is found outside, and by how long lost claims stood."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from schemas.states import EffectClass, StepStatus
from tests.support.storm import reclaims, shapes, world
from tests.support.storm.forecast import LASTS_S, Ahead
from tests.support.storm.pauses import Pause, longest, pauses
from tests.support.storm.reclaims import Claim, Loss, Stood, covered
from tests.support.storm.troubles import SLEEPS
from tests.support.storm.weather import LOOKS, Weather, fields
from workers.faults import rehearsal, report
from workers.faults.facts import gather
from workers.faults.floor import Floor
from workers.faults.known import RunFacts, Violation
from workers.faults.report import Outcome, Recovery
from workers.faults.scene import Scene, Wanted, now_ms

PATIENCE: Final = 2  # times the bound, for a machine that has other work
BACKLOG_S: Final = 30  # a message is called lost once one that was sent so much later was claimed
OUTAGE_S: Final = 60  # at most, each
BUSY_S: Final = 180  # the same, where supervisors are there, and a busy machine lets them look too seldom
SELDOM: Final = 0.6  # of a storm, at most, may be excused for that alone; it was 0.42 at loads from 10 to 22
HELD: Final = {"held": True, "waiting": False}
PROBED: Final = ("step", "send")  # a worker is asked first what became of it, behind all else in its queue


def rehearse(floor: Floor, seed: int) -> None:
    """One run of all steps without faults; it shows their classes."""
    run, scene = Ahead(f"{seed}-rehearsal", shapes.ALL), Scene("rehearsal", seed)
    scene.runs = [Wanted(run.run_id, fields(run))]
    rehearsal.rehearse(floor, scene)


def judge(weather: Weather, title: str, seconds: float) -> tuple[Outcome, dict[str, Any]]:
    """Everything there is to say about it, and figures that a certificate has no line for."""
    facts = gather(weather.floor, weather.scene)
    orders = {run.run_id: run.name for run in weather.runs}
    complaints = list(world.complaints(weather.floor.folder, weather.ledger_file, facts, orders))
    facts = [_allowed_for(weather, run) for run in facts]
    outcome = report.judge(weather.scene, title, facts, seconds, complaints)
    stood = list(_stood(weather, facts))
    still = [pause for run in facts for pause in pauses(run.run_id, run.events, weather.outages)]
    more = (*_left_standing(facts), *_late(weather, stood), *_stood_still(weather, still), *_outages_too_long(weather))
    recovered = tuple(Recovery(one.loss.text, one.claim.ended - one.loss.at) for one in stood if _is_ended(one))
    outcome = replace(outcome, recoveries=recovered, violations=(*outcome.violations, *more))
    return outcome, _figures(weather, facts, stood, still)


def _allowed_for(weather: Weather, run: RunFacts) -> RunFacts:
    """The bound is promised for when nothing is broken: in an outage nobody could end the run."""
    if run.bound_at is None or run.ended_at is None or not run.events:
        return run
    return replace(run, bound_at=run.bound_at + covered(weather.outages, run.events[0].at, run.ended_at))


def _left_standing(facts: Sequence[RunFacts]) -> Iterator[Violation]:
    """Undos that were given up, though somebody could have tried again."""
    for run in facts:
        for step in run.steps:
            if step.status == StepStatus.COMPENSATION_FAILED and step.effect != EffectClass.ONCE:
                yield Violation("end", "loss", run.run_id, f"the undo of {step.id} ({step.effect}) was given up")


def _stood(weather: Weather, facts: Sequence[RunFacts]) -> Iterator[Stood]:
    """Claims whose holder was killed or frozen, by the storm or by an order."""
    by_pid: defaultdict[int, list[Claim]] = defaultdict(list)
    for run in facts:
        for claim in reclaims.claims(run.run_id, run.events):
            by_pid[claim.pid].append(claim)
    deaths = [act for act in weather.floor.log.acts(what="ordered") if act.details["deed"] == "die"]
    ordered = [Loss(act.pid, act.at, f"child killed, {act.details['place']}") for act in deaths]
    return reclaims.stood([*weather.losses, *ordered], by_pid)


def _late(weather: Weather, stood: Sequence[Stood]) -> Iterator[Violation]:
    """Claims that stood for more than the bound allows, and twice that for a busy machine."""
    given = weather.floor.settings
    most_ms = round(1000 * PATIENCE * (given.lease_s + 2 * given.sweep_s))
    for one in stood:
        ms = one.ms(weather.outages)
        if not _is_asked(one) and ms > most_ms:
            text = f"{one.claim.kind} {one.claim.step_id} stood for {ms / 1000:.1f} s behind: {one.loss.text}"
            yield Violation("reclaim", "stuck", one.claim.run_id, text)


def _is_asked(one: Stood) -> bool:
    return (one.claim.kind, one.claim.step_id) == PROBED


def _is_ended(one: Stood) -> bool:
    return one.claim.ended != reclaims.FOREVER


def _stood_still(weather: Weather, found: Sequence[Pause]) -> Iterator[Violation]:
    """Runs that did not move for longer than it may take, twice: who has a step in hand ends it, or loses it, unless it
    is told to hold; who waits may wait for a frozen worker, and its message may be lost in a queue that others wait in.
    """
    given = weather.floor.settings
    reclaimed_s = given.lease_s + 2 * given.sweep_s
    for pause in found:
        if pause.held and pause.run_id in weather.held:
            continue
        most_s = PATIENCE * (reclaimed_s + (LASTS_S[1] if pause.held else SLEEPS[1] * reclaimed_s + BACKLOG_S))
        if pause.ms > 1000 * most_s:
            text = f"nothing happened for {pause.ms / 1000:.1f} s between {pause.before} and {pause.behind}"
            yield Violation("pause", "stuck", pause.run_id, text)


def _outages_too_long(weather: Weather) -> Iterator[Violation]:
    """What excuses claims and runs must be over soon itself, and may not excuse all of a storm."""
    if (share := _seldom(weather)) > SELDOM:
        yield Violation("outage", "stuck", "", f"supervisors looked too seldom for {share:.0%} of the storm")
    for one in weather.outages:
        if one.ended - one.began > 1000 * (BUSY_S if one.what == LOOKS else OUTAGE_S):
            yield Violation("outage", "stuck", "", f"{one.what} was away for {(one.ended - one.began) / 1000:.1f} s")


def _seldom(weather: Weather) -> float:
    """The share of the storm in which supervisors looked too seldom, and nothing else excuses them."""
    return reclaims.share_of(LOOKS, weather.outages, weather.began, now_ms())


def _figures(
    weather: Weather, facts: Sequence[RunFacts], stood: Sequence[Stood], still: Sequence[Pause]
) -> dict[str, Any]:
    asserted = sorted(one.ms(weather.outages) for one in stood if not _is_asked(one) and _is_ended(one))
    shape_of = {run.run_id: run.shape for run in weather.runs}
    acts = Counter(act.details["deed"] for act in weather.floor.log.acts(what="ordered"))
    return {
        "runs_in_calm": len(weather.runs) - len(weather.forecast.runs),
        "ends_by_shape": {
            f"{shape} {status}": count
            for (shape, status), count in sorted(Counter((shape_of[run.run_id], run.status) for run in facts).items())
        },
        "attempts_beyond_the_first": sum(act.what == "began" and act.attempt > 1 for run in facts for act in run.acts),
        "claims_lost": len(stood),
        "claims_lost_by": dict(Counter(one.loss.text.partition(",")[0] for one in stood)),
        "stood_ms": {"median": statistics.median(asserted), "slowest": asserted[-5:]} if asserted else {},
        "claims_lost_in_calm": sum(not covered(weather.outages, one.loss.at, one.claim.ended) for one in stood),
        "outages_s": round(covered(weather.outages, 0, now_ms()) / 1000),
        "outages": _outages(weather),
        "looked_too_seldom": round(_seldom(weather), 3),
        "ordered": dict(acts),
        "longest_pauses": {kind: asdict(pause) for kind in HELD if (pause := longest(still, held=HELD[kind]))},
        "late": sum(len(run.late) for run in facts),
        "letters": dict(Counter(reason for run in facts for reasons in run.letters.values() for reason in reasons)),
    }


def _outages(weather: Weather) -> dict[str, float]:
    """How long each was, all of a kind together (s)."""
    found: Counter[str] = Counter()
    for one in weather.outages:
        found[one.what] += one.ended - one.began
    return {what: ms / 1000 for what, ms in found.items()}
