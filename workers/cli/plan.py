"""`mandor plan …`: judge a plan as the door would, show it, draw it."""

import json
from typing import Any

import click

from orchestrator import policies
from orchestrator.admission import Admission, AdmittedStep, PayloadDrift, readmit, validate_handoff
from orchestrator.admission.refusal import Kind
from orchestrator.cli import inputs, output
from orchestrator.cli.command import NO, Group
from orchestrator.cli.services import services
from orchestrator.errors import NotFound
from orchestrator.telemetry.text import printable
from schemas.ids import is_run_id
from workers import registry
from workers.cli import door, dry_run, graph, inflight


@click.group("plan", cls=Group)
def group() -> None:
    """Work with plans, without running them."""


group.add_command(dry_run.command)
group.add_command(inflight.command)


@group.command("validate")
@door.options
def validate(**options: Any) -> None:
    """Judge a planner's answer, as text, exactly as it is judged before a run starts.

    Exit 0 if it is accepted (as it is, or found within other text), 1 if not. Each error names its path in the plan.

    \b
    Examples:
      mandor plan validate plan.json --context-file order.json
      ask-my-model | mandor plan validate - --no-context --json
    """
    verdict = _judge(door.read(**options))
    if output.as_json():
        output.print_json(verdict)
    elif verdict["errors"]:
        door.print_refusal(verdict)
    else:
        _print_accepted(verdict)
    if verdict["errors"]:
        click.get_current_context().exit(NO)


def _judge(given: door.Door) -> dict[str, Any]:
    try:
        return door.accepted(given.admit())
    except PayloadDrift as drift:
        return door.refused(drift)


@group.command("show")
@click.argument("source", metavar="FILE|-|RUN")
def show(source: str) -> None:
    """Show a plan with every default written out: of a planner's answer, or the one a run was given.

    \b
    Examples:
      mandor plan show plan.json
      mandor plan show RUN_ID --json | jq -r '.steps[].token'
    """
    plan = _plan_of(source)
    if output.as_json():
        output.print_json(_described(plan))
        return
    output.print_fields(
        {"plan": plan.plan_id, "plan hash": plan.plan_hash, "context hash": plan.plan.context_hash}
        | {"steps": len(plan.steps), "waves": len(graph.waves(plan.steps))}
    )
    for step in plan.steps:
        _print_step(step)


@group.command("graph")
@click.argument("source", metavar="FILE|-|RUN")
@click.option("--mermaid", is_flag=True, help="As a Mermaid flowchart, for pages that draw one.")
def draw(source: str, mermaid: bool) -> None:
    """Draw which step waits for which. A step without needs in the plan waits for the one above it.

    \b
    Examples:
      mandor plan graph plan.json
      mandor plan graph RUN_ID --mermaid > plan.mmd
    """
    plan = _plan_of(source)
    drawn = list(graph.mermaid_lines(plan.steps))
    if output.as_json():
        ids = [[step.id for step in wave] for wave in graph.waves(plan.steps)]
        output.print_json({"waves": ids, "edges": graph.edges(plan.steps), "mermaid": "\n".join(drawn)})
        return
    for line in drawn if mermaid else graph.text_lines(plan.steps):
        click.echo(line)


def _plan_of(source: str) -> Admission:
    """The plan of a run, or of an answer, whatever context it was made for. PayloadDrift: there is none in it."""
    try:
        return _read_plan(source)
    except PayloadDrift as drift:
        if any(issue.kind == Kind.UNKNOWN_ACTION for issue in drift.issues):
            drift.also(registry.NAMED_BY)
        raise


def _read_plan(source: str) -> Admission:
    tools = services()
    registry.load_actions(tools.settings)
    known, policy = registry.catalogue(), policies.resolve(tools.settings, None)
    if is_run_id(source):
        return readmit(_stored(source), catalogue=known, policy=policy, context_hash=None)
    return validate_handoff(inputs.read_bytes(source), catalogue=known, policy=policy, context_hash=None)


def _stored(run_id: str) -> str:
    ledger = services().ledger
    plan = ledger.newest_plan(run_id)
    if plan is None:
        message = "this run has no plan yet" if ledger.run(run_id) else f"no run {run_id}"
        raise NotFound(message, path="RUN", hint="`mandor run list` shows what there is")
    return plan.plan_text


def _described(plan: Admission) -> dict[str, Any]:
    steps = [door.step_json(step) | {"effect": step.spec.effect, "token": step.token} for step in plan.steps]
    hashes = {"plan_id": plan.plan_id, "plan_hash": plan.plan_hash, "context_hash": plan.plan.context_hash}
    return hashes | {"extracted": plan.extracted, "steps": steps}


def _print_step(step: AdmittedStep) -> None:
    waits = f"  after {', '.join(step.needs)}" if step.needs else ""
    click.echo(f"\n{step.index}  {step.id}  {step.action} ({step.spec.effect}){waits}")
    for name, value in step.params.items():
        click.echo(f"   {printable(name)}: {printable(json.dumps(value, ensure_ascii=False))}")


def _print_accepted(verdict: dict[str, Any]) -> None:
    output.print_fields({"verdict": verdict["verdict"], "plan hash": verdict["plan_hash"]})
    click.echo()
    rows = [[step["index"], step["id"], step["action"], ", ".join(step["needs"])] for step in verdict["steps"]]
    output.print_table(["#", "step", "action", "waits for"], rows)
