"""`mandor plan dry-run`: what a plan would do, with nothing of it being done."""

from collections.abc import Iterator
from typing import Any

import click

from orchestrator.admission import ActionSpec, Admission, PayloadDrift
from orchestrator.cli import output
from orchestrator.cli.command import NO, Command
from orchestrator.cli.policy import phrase
from orchestrator.telemetry.text import printable
from schemas.policy import OnFailure, Policy, policy_hash
from schemas.states import EffectClass
from workers.cli import door, graph
from workers.registry import registry
from workers.rehearsal import Rehearsed, rehearse


@click.command("dry-run", cls=Command)
@door.options
@click.option("--mermaid", is_flag=True, help="As a Mermaid flowchart, for pages that draw one.")
def command(mermaid: bool, **options: Any) -> None:
    """Judge a plan as the door does, and tell what each step would do, within which limits, and who must agree.

    Nothing is done, and no service is asked: what a step would do is said by its action, where that has a simulate.
    Exit 0 if the plan is accepted, 1 if not, or if a simulate failed.

    \b
    Examples:
      mandor plan dry-run plan.json --context-file order.json
      mandor plan dry-run plan.json --no-context --policy narrower.json --json | jq '.steps[] | select(.approval)'
      mandor plan dry-run plan.json --no-context --mermaid > plan.mmd
    """
    given = door.read(**options)
    try:
        plan = given.admit()
    except PayloadDrift as drift:
        if mermaid:
            raise  # there is nothing to draw
        _refuse(door.refused(drift))
        return
    steps = rehearse(plan, given.policy, registry)
    if output.as_json():
        output.print_json(_as_json(plan, given.policy, steps))
    elif mermaid:
        click.echo("\n".join(_mermaid(steps)))
    else:
        _print(plan, given.policy, steps)
    if any(one.failed for one in steps):
        click.get_current_context().exit(NO)


def _refuse(verdict: dict[str, Any]) -> None:
    if output.as_json():
        output.print_json(verdict)
    else:
        door.print_refusal(verdict)
    click.get_current_context().exit(NO)


# ---- for programs


def _as_json(plan: Admission, policy: Policy, steps: list[Rehearsed]) -> dict[str, Any]:
    return {
        **door.accepted(plan),
        "policy_hash": policy_hash(policy),
        "run": _terms(policy),
        "steps": [_step_json(one, policy) for one in steps],
        "waves": [[step.id for step in wave] for wave in graph.waves(plan.steps)],
        "mermaid": "\n".join(_mermaid(steps)),
    }


def _terms(policy: Policy) -> dict[str, Any]:
    """What holds for the run as a whole."""
    return {
        "deadline_s": policy.deadline_s,
        "max_parallel": policy.max_parallel,
        "on_failure": policy.failing,
        "on_doubt": policy.doubting,
        "wait_s": policy.wait_s,
    }


def _step_json(one: Rehearsed, policy: Policy) -> dict[str, Any]:
    spec = one.step.spec
    return {
        **door.step_json(one.step),
        "effect": spec.effect,
        "approval": one.approval,
        "limits": dict(one.limits.named()),
        "queue": one.queue,
        "compensation": spec.has_compensation,
        "confined": spec.is_confined(policy),
        "probe": spec.has_probe,
        "would": one.would,
        "why": one.why,
        "failed": one.failed,
    }


# ---- for people


def _mermaid(steps: list[Rehearsed]) -> Iterator[str]:
    labels = {one.step.id: _label(one) for one in steps}
    return graph.mermaid_lines([one.step for one in steps], lambda step: labels[step.id])


def _label(one: Rehearsed) -> str:
    agreed = "<br/>needs approval" if one.approval else ""
    return f"{graph.label(one.step)}<br/>{one.step.spec.effect}{agreed}"


def _print(plan: Admission, policy: Policy, steps: list[Rehearsed]) -> None:
    waiting = sum(one.approval for one in steps)
    output.print_fields(
        {"verdict": door.accepted(plan)["verdict"], "plan hash": plan.plan_hash, "policy hash": policy_hash(policy)}
        | {name.replace("_", " "): phrase(value) for name, value in _terms(policy).items()}
        | {"steps": len(steps), "waves": len(graph.waves(plan.steps)), "approvals": waiting}
    )
    for one in steps:
        click.echo()
        for line in _lines(one, policy):
            click.echo(printable(line))


def _lines(one: Rehearsed, policy: Policy) -> Iterator[str]:
    step, spec, limits = one.step, one.step.spec, one.limits
    waits = f"  after {', '.join(step.needs)}" if step.needs else ""
    yield f"{step.index}  {step.id}  {step.action} ({spec.effect}){waits}"
    yield f"   would: {one.would}" if one.would is not None else f"   would: not said, {one.why}"
    if one.approval:
        yield f"   waits for a person's approval, {phrase(policy.wait_s)} s at most"
    tries = f"{limits.attempts} attempt{'' if limits.attempts == 1 else 's'} of {phrase(limits.timeout_s)} s"
    waited = f"{phrase(limits.backoff_s)} to {phrase(limits.backoff_max_s)} s between them"
    yield f"   {tries}, {waited}; lease {phrase(limits.lease_s)} s; queue {one.queue}"
    yield f"   if the run fails: {_undone(spec, policy)}"


def _undone(spec: ActionSpec, policy: Policy) -> str:
    if spec.effect is EffectClass.PURE:
        return "there is nothing to undo"
    if policy.failing is OnFailure.STOP:
        return "it stays, for the policy undoes nothing (on_failure)"
    if spec.has_compensation:
        return "its compensation undoes it"
    return "it goes with the run's workspace" if spec.is_confined(policy) else "nothing undoes it"
