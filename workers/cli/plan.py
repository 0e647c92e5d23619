"""`mandor plan …`: judge a plan as the door would."""

from typing import Any

import click

from orchestrator import policies
from orchestrator.admission import Admission, PayloadDrift, validate_handoff
from orchestrator.cli import inputs, output
from orchestrator.cli.command import NO, Group
from orchestrator.cli.services import services
from orchestrator.settings import Settings
from schemas.canonical import NotCanonical, hash_of
from schemas.run import context_object
from workers import registry


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


def _accepted(admitted: Admission) -> dict[str, Any]:
    steps = [
        {"id": step.id, "index": step.index, "action": step.action, "params": step.params, "needs": list(step.needs)}
        for step in admitted.steps
    ]
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
