"""`mandor plan …`: judge a plan as the door would, show it, draw it."""

import json
from typing import Any

import click

from orchestrator import policies
from orchestrator.admission import Admission, AdmittedStep, PayloadDrift, readmit, validate_handoff
from orchestrator.cli import inputs, output
from orchestrator.cli.command import NO, Group
from orchestrator.cli.services import services
from orchestrator.errors import NotFound
from orchestrator.settings import Settings
from orchestrator.telemetry.text import printable
from schemas.canonical import NotCanonical, hash_of
from schemas.ids import is_run_id
from schemas.run import context_object
from workers import registry
from workers.cli import graph


@click.group("plan", cls=Group)
def group() -> None:
    """Work with plans, without running them."""


@group.command("validate")
@click.argument("source", metavar="FILE|-")
@click.option("--context", metavar="JSON", help="The context the plan was made for; none given: the empty one.")
@click.option("--context-file", metavar="FILE|-", help="The same from a file.")
@click.option("--no-context", is_flag=True, help="Do not compare the plan's context hash.")
@click.option("--policy", "policy_file", metavar="FILE|-", help="JSON that narrows the policy, as for a run.")
def validate(
    source: str, context: str | None, context_file: str | None, no_context: bool, policy_file: str | None
) -> None:
    """Judge a planner's answer, as text, exactly as it is judged before a run starts.

    Exit 0 if it is accepted (as it is, or found within other text), 1 if not. Each error names its path in the plan.

    \b
    Examples:
      mandor plan validate plan.json --context-file order.json
      ask-my-model | mandor plan validate - --no-context --json
    """
    inputs.one_stdin(source, context_file, policy_file)
    tools = services()
    hashed = None if no_context else _context_hash(inputs.one_text("context", context, context_file))
    verdict = judge(inputs.read_bytes(source), hashed, tools.settings, policy_file)
    if output.as_json():
        output.print_json(verdict)
    else:
        _print_verdict(verdict)
    if verdict["errors"]:
        click.get_current_context().exit(NO)


def judge(raw: bytes, context_hash: str | None, settings: Settings, policy_file: str | None) -> dict[str, Any]:
    """The verdict in the shape that --json prints."""
    registry.load_actions(settings)
    policy = policies.resolve(settings, inputs.read_policy(policy_file))
    try:
        admitted = validate_handoff(raw, catalogue=registry.catalogue(), policy=policy, context_hash=context_hash)
    except PayloadDrift as drift:
        return {"verdict": "reject", "plan_hash": None, "steps": [], "errors": drift.errors()}
    return _accepted(admitted)


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
    tools = services()
    registry.load_actions(tools.settings)
    known, policy = registry.catalogue(), policies.resolve(tools.settings, None)
    if is_run_id(source):
        return readmit(_stored(source), catalogue=known, policy=policy, context_hash=None)
    return validate_handoff(inputs.read_bytes(source), catalogue=known, policy=policy, context_hash=None)


def _stored(run_id: str) -> str:
    ledger = services().ledger
    run = ledger.run(run_id)
    plan = ledger.plan(run_id, run.generation) if run else None
    if plan is None:
        message = "this run has no plan yet" if run else f"no run {run_id}"
        raise NotFound(message, path="RUN", hint="`mandor run list` shows what there is")
    return plan.plan_text


def _described(plan: Admission) -> dict[str, Any]:
    steps = [_step_json(step) | {"effect": step.spec.effect, "token": step.token} for step in plan.steps]
    hashes = {"plan_id": plan.plan_id, "plan_hash": plan.plan_hash, "context_hash": plan.plan.context_hash}
    return hashes | {"extracted": plan.extracted, "steps": steps}


def _print_step(step: AdmittedStep) -> None:
    waits = f"  after {', '.join(step.needs)}" if step.needs else ""
    click.echo(f"\n{step.index}  {step.id}  {step.action} ({step.spec.effect}){waits}")
    for name, value in step.params.items():
        click.echo(f"   {printable(name)}: {printable(json.dumps(value, ensure_ascii=False))}")


def _step_json(step: AdmittedStep) -> dict[str, Any]:
    shown = {"id": step.id, "index": step.index, "action": step.action}
    return shown | {"params": step.params, "needs": list(step.needs)}


def _accepted(admitted: Admission) -> dict[str, Any]:
    steps = [_step_json(step) for step in admitted.steps]
    verdict = "accept_after_extraction" if admitted.extracted else "accept"
    return {"verdict": verdict, "plan_hash": admitted.plan_hash, "steps": steps, "errors": []}


def _context_hash(text: str | None) -> str:
    try:
        return hash_of(context_object(text))
    except NotCanonical as wrong:
        raise click.UsageError(f"--context: {wrong}") from None


def _print_verdict(verdict: dict[str, Any]) -> None:
    output.print_fields({"verdict": verdict["verdict"], "plan hash": verdict["plan_hash"]})
    click.echo()
    if verdict["errors"]:
        rows = [[error["path"] or "(all of it)", error["kind"], error["message"]] for error in verdict["errors"]]
        output.print_table(["path", "kind", "message"], rows)
    else:
        rows = [[step["index"], step["id"], step["action"], ", ".join(step["needs"])] for step in verdict["steps"]]
        output.print_table(["#", "step", "action", "waits for"], rows)
