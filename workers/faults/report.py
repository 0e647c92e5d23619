"""What came of the scenarios: verdicts, and a certificate over all of them; as text, JSON and JUnit. Pure."""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from xml.etree import ElementTree as ET

from schemas.states import EffectClass, StepStatus
from workers.faults.effects import EXHAUSTED, IN_DOUBT
from workers.faults.invariants import broken, moves
from workers.faults.known import RunFacts, Violation
from workers.faults.orders import Order
from workers.faults.scene import UNDONE, Fault, Scene, Wanted

ENDED_BY: Final = ("in_doubt", "step_failed")  # a step, which the run's reason names
NOT_DONE: Final = "harm not done"
PATIENCE: Final = 2  # times a lease and two sweeps
NOT_APPLICABLE: Final = "not applicable"


@dataclass(frozen=True, slots=True)
class Recovery:
    """From a fault to the next transition of what it was done to."""

    fault: str
    ms: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """One scenario, judged. ends: runs by their status; acts: effects by class. error: it could not be played.
    left_out: what the plan gives no occasion for.
    """

    name: str
    title: str
    seconds: float
    ends: dict[str, int] = field(default_factory=dict)
    effects: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    recoveries: tuple[Recovery, ...] = ()
    violations: tuple[Violation, ...] = ()
    error: str | None = None
    left_out: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether everything holds, and there was something that had to."""
        return not (self.violations or self.error or self.skipped)

    @property
    def skipped(self) -> bool:
        """Whether none of it can be done with this plan."""
        return bool(self.left_out) and not (self.ends or self.violations or self.error)


@dataclass(frozen=True, slots=True)
class Report:
    """All of it. driven: what was driven, in words; bound_ms: lease and two sweeps, what a lost worker costs; call:
    what the names of its runs end in.
    """

    seed: int
    driven: str
    bound_ms: int
    outcomes: tuple[Outcome, ...]
    call: str = ""

    @property
    def passed(self) -> bool:
        """Whether every scenario did that was played, and any was."""
        played = [outcome for outcome in self.outcomes if not outcome.skipped]
        return bool(played) and all(outcome.passed for outcome in played)

    @property
    def verdict(self) -> str:
        """In a word."""
        is_any_played = not all(outcome.skipped for outcome in self.outcomes)
        return "passed" if self.passed else "failed" if is_any_played else NOT_APPLICABLE


# ---- judging


def judge(
    scene: Scene,
    title: str,
    facts: Sequence[RunFacts],
    seconds: float,
    complaints: Sequence[str] = (),
    bound_ms: int | None = None,
) -> Outcome:
    """Hold what is known of a scenario's runs against what is promised. complaints: of whoever looked outside;
    bound_ms: a lease and two sweeps, None where recoveries are judged by others.
    """
    wanted = {run.run_id: run for run in scene.runs}
    excused = {run.run_id for run in facts if is_excused(run, scene.faults)}
    given_up = {(run.run_id, step_id) for run in facts for step_id in not_undone(run)}
    violations = [
        *(one for run in facts for one in broken(run)),
        *(one for run in facts if run.run_id not in excused for one in unexpected(run, wanted[run.run_id])),
        *(missed(order) for order in scene.missed if order.run_id not in excused and order.about not in given_up),
        *(too_slow(scene, facts, bound_ms) if bound_ms else ()),
        *(Violation(scene.name, "other", "", text) for text in scene.wrong),
        *(Violation("audit", "other", "", text) for text in complaints),
    ]
    return Outcome(
        name=scene.name,
        title=title,
        seconds=seconds,
        ends=dict(Counter(run.status for run in facts)),
        effects=effects_of(facts),
        faults=dict(Counter(fault.text for fault in scene.faults)),
        recoveries=tuple(recoveries(scene.faults, facts)),
        violations=tuple(violations),
        left_out=tuple(scene.left_out),
    )


def unexpected(run: RunFacts, wanted: Wanted) -> Iterator[Violation]:
    """A crash costs time, not work: a run must get where it was to get."""
    if run.status not in wanted.ends:
        yield Violation("end", "loss", run.run_id, f"it is {run.status}, not {' or '.join(sorted(wanted.ends))}")


def missed(order: Order) -> Violation:
    """What was not done to a run shows nothing."""
    return Violation(
        NOT_DONE, "other", order.run_id, f"nobody came to `{order.deed}` at {order.place} of {order.step_id}"
    )


def not_undone(run: RunFacts) -> Iterator[str]:
    """Steps whose compensation raised until it was given up: nobody came to its end."""
    return (step.id for step in run.steps if step.status == StepStatus.COMPENSATION_FAILED)


def is_excused(run: RunFacts, faults: Sequence[Fault]) -> bool:
    """Whether it ended by a `once` step of which nobody knows, which is not run again; or by one that has had the only
    attempt it is given. What ends it for another reason is no excuse, whatever else is in doubt, nor is a step that
    nobody has harmed.
    """
    cause, _, step_id = run.reason.partition(":")
    step = next((one for one in run.steps if one.id == step_id), None)
    harmed = any(fault.interrupts and _may_have_met(fault, run, step_id) for fault in faults)
    if step is None or not harmed or cause not in ENDED_BY or run.status not in UNDONE:
        return False
    reasons = run.letters.get(step_id, ())
    doubtful = step.effect == EffectClass.ONCE and IN_DOUBT in reasons
    return doubtful or (step.max_attempts == 1 and EXHAUSTED in reasons)


def _may_have_met(fault: Fault, run: RunFacts, step_id: str) -> bool:
    return fault.run_id in ("", run.run_id) and fault.step_id in (None, step_id)


def effects_of(facts: Sequence[RunFacts]) -> dict[str, int]:
    """How often actions of each class came to their end."""
    counted: Counter[str] = Counter()
    for run in facts:
        classes = {step.id: step.effect for step in run.steps}
        counted.update(classes[act.step_id] for act in run.acts if act.what == "acted" and act.step_id in classes)
    return dict(counted)


def recoveries(faults: Sequence[Fault], facts: Sequence[RunFacts]) -> Iterator[Recovery]:
    """How long it took until what was interrupted moved on."""
    return (Recovery(fault.text, ms) for fault, ms in _recovered(faults, facts))


def too_slow(scene: Scene, facts: Sequence[RunFacts], bound_ms: int) -> Iterator[Violation]:
    """Recoveries that took longer than the bound allows, and twice that for a machine that has other work. A probe that
    is to be asked waits its turn, behind whatever else workers have.
    """
    most_ms = PATIENCE * bound_ms + round(1000 * scene.spare_s)
    asked = {(run.run_id, step.id) for run in facts for step in run.steps if step.has_probe}
    for fault, ms in _recovered(scene.faults, facts):
        if ms > most_ms and (fault.run_id, fault.step_id) not in asked:
            text = f"{fault.text}: it moved again after {_seconds(ms)}, where {_seconds(most_ms)} are enough"
            yield Violation("recovery", "stuck", fault.run_id, text)


def _recovered(faults: Sequence[Fault], facts: Sequence[RunFacts]) -> Iterator[tuple[Fault, int]]:
    by_id = {run.run_id: run for run in facts}
    for fault in faults:
        run = by_id.get(fault.run_id)
        at = _next_move(run, fault) if run is not None and fault.interrupts else None
        if at is not None:
            yield fault, at - fault.at


def _next_move(run: RunFacts, fault: Fault) -> int | None:
    for event in run.events:
        moved = [move.step_id for move in moves(event)]
        if event.at >= fault.at and (fault.step_id is None or fault.step_id in moved):
            return event.at
    return None


# ---- the certificate


def certificate(report: Report) -> dict[str, Any]:
    """Counts over all scenarios, and the times that recoveries took (ms)."""
    outcomes = report.outcomes
    sorts = Counter(violation.sort for outcome in outcomes for violation in outcome.violations)
    times = sorted((one for outcome in outcomes for one in outcome.recoveries), key=lambda one: one.ms)
    return {
        "verdict": report.verdict,
        "scenarios": len(outcomes),
        "failed": [outcome.name for outcome in outcomes if not (outcome.passed or outcome.skipped)],
        "skipped": [outcome.name for outcome in outcomes if outcome.skipped],
        "runs": _sum(outcome.ends for outcome in outcomes),
        "effects": _sum(outcome.effects for outcome in outcomes),
        "faults": sum(sum(outcome.faults.values()) for outcome in outcomes),
        "duplicates": sorts["duplicate"],
        "losses": sorts["loss"],
        "stuck": sorts["stuck"],
        "other": sorts["other"],
        "recovery_ms": {
            "count": len(times),
            "median": round(statistics.median(one.ms for one in times)) if times else None,
            "slowest": times[-1].ms if times else None,
            "slowest_fault": times[-1].fault if times else None,
        },
        "lease_and_two_sweeps_ms": report.bound_ms,
    }


def _sum(counted: Iterator[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counted:
        total.update(one)
    return dict(sorted(total.items()))


# ---- as it is printed


def as_json(report: Report) -> dict[str, Any]:
    """For programs."""
    return {
        "seed": report.seed,
        "call": report.call,
        "driven": report.driven,
        "certificate": certificate(report),
        "scenarios": [
            {**asdict(outcome), "passed": outcome.passed, "skipped": outcome.skipped} for outcome in report.outcomes
        ],
    }


def line(outcome: Outcome) -> str:
    """One scenario, in a line."""
    runs, faults = sum(outcome.ends.values()), sum(outcome.faults.values())
    counts = f"{outcome.seconds:5.1f} s  {runs:>3} runs {faults:>4} faults"
    return f"{outcome.name:<4} {_word(outcome):<7}{counts}  {outcome.title}"


def _word(outcome: Outcome) -> str:
    if outcome.skipped:
        return "n/a"
    return "ok" if outcome.passed else "BROKEN" if outcome.violations else "ERROR"


def remarks(outcome: Outcome) -> Iterator[str]:
    """What is to be said besides, a line each."""
    yield from wrong(outcome)
    for left_out in outcome.left_out:
        yield f"     not applicable: {left_out}"


def wrong(outcome: Outcome) -> Iterator[str]:
    """What is wrong with it, a line each."""
    if outcome.error:
        yield f"     {outcome.error}"
    for violation in outcome.violations:
        yield f"     {violation.invariant}: {violation.text}" + (f" ({violation.run_id})" if violation.run_id else "")


def text(report: Report) -> Iterator[str]:
    """The certificate, for people."""
    said = certificate(report)
    times = said["recovery_ms"]
    yield f"certificate of {report.driven}: {said['verdict'].upper()}"
    yield f"  duplicates  {said['duplicates']}"
    yield f"  losses      {said['losses']}"
    yield f"  stuck       {said['stuck']}"
    if said["other"]:
        yield f"  other       {said['other']}"
    if times["count"]:
        yield f"  recovery    median {_seconds(times['median'])} of {times['count']}; {_slowest(times)}"
        yield f"              a lease and two sweeps are {_seconds(report.bound_ms)}"
    yield f"  runs        {_counts(said['runs'])}"
    yield f"  effects     {_counts(said['effects'])}"
    played, skipped = said["scenarios"] - len(said["skipped"]), ", ".join(said["skipped"])
    yield f"  faults      {said['faults']}, in {played} scenarios"
    if skipped:
        yield f"  skipped     {skipped}, for which this plan gives no occasion"


def _slowest(times: dict[str, Any]) -> str:
    return f"slowest {_seconds(times['slowest'])}, {times['slowest_fault']}"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"


def _counts(counted: dict[str, int]) -> str:
    return ", ".join(f"{number} {word}" for word, number in counted.items()) or "none"


def junit(report: Report) -> bytes:
    """For a CI server: one test case for each scenario."""
    outcomes = report.outcomes
    failures, errors = sum(bool(one.violations) for one in outcomes), sum(one.error is not None for one in outcomes)
    suite = ET.Element(
        "testsuite",
        name="mandor.faults",
        tests=str(len(outcomes)),
        failures=str(failures),
        errors=str(errors),
        skipped=str(sum(one.skipped for one in outcomes)),
        time=f"{sum(one.seconds for one in outcomes):.1f}",
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (("seed", report.seed), ("driven", report.driven), ("call", report.call)):
        ET.SubElement(properties, "property", name=name, value=str(value))
    for outcome in outcomes:
        _case(suite, outcome)
    tree: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return tree


def _case(suite: ET.Element, outcome: Outcome) -> None:
    case = ET.SubElement(
        suite, "testcase", classname="mandor.faults", name=f"{outcome.name} {outcome.title}", time=f"{outcome.seconds}"
    )
    told = "\n".join(wrong(outcome)) or None
    if outcome.violations:
        ET.SubElement(case, "failure", message=f"{len(outcome.violations)} violations").text = told
    elif outcome.error is not None:
        ET.SubElement(case, "error", message=outcome.error).text = told
    elif outcome.skipped:
        ET.SubElement(case, "skipped", message=f"{NOT_APPLICABLE}: {'; '.join(outcome.left_out)}")
    elif outcome.left_out:
        ET.SubElement(case, "system-out").text = "\n".join(remarks(outcome))
