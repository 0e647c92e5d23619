"""The door as commands go through it: a planner's answer, judged exactly as before a run starts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from orchestrator import policies
from orchestrator.admission import Admission, AdmittedStep, PayloadDrift, validate_handoff
from orchestrator.admission.refusal import Kind
from orchestrator.cli import inputs, output
from orchestrator.cli.services import services
from orchestrator.settings import Settings
from schemas.canonical import NotCanonical, hash_of
from schemas.policy import Policy
from schemas.run import context_object
from workers import registry

OPTIONS = (
    click.argument("source", metavar="FILE|-"),
    click.option("--context", metavar="JSON", help="The context the plan was made for; none given: the empty one."),
    click.option("--context-file", metavar="FILE|-", help="The same from a file."),
    click.option("--no-context", is_flag=True, help="Do not compare the plan's context hash."),
    click.option("--policy", "policy_file", metavar="FILE|-", help="JSON that narrows the policy, as for a run."),
    click.option(
        "--principal", metavar="NAME", default=policies.FROM_BROKER, show_default=True, help="Who would submit it."
    ),
)


def options(command: Callable[..., None]) -> Callable[..., None]:
    """What is judged, against which context, under which policy."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Door:
    """What an answer is held against. context_hash None: it is not compared."""

    raw: bytes
    settings: Settings
    policy: Policy
    context_hash: str | None

    def admit(self) -> Admission:
        """The plan, or PayloadDrift."""
        known = registry.catalogue()
        return validate_handoff(self.raw, catalogue=known, policy=self.policy, context_hash=self.context_hash)


def read(
    source: str,
    context: str | None,
    context_file: str | None,
    no_context: bool,
    policy_file: str | None,
    principal: str,
) -> Door:
    """Read all that the options name, and import the actions."""
    inputs.one_stdin(source, context_file, policy_file)
    given = services().settings
    hashed = None if no_context else _context_hash(inputs.one_text("context", context, context_file))
    raw = inputs.read_bytes(source)
    registry.load_actions(given)
    policy = policies.resolve(given, inputs.read_policy(policy_file), principal=principal)
    return Door(raw, given, policy, hashed)


def accepted(plan: Admission) -> dict[str, Any]:
    """The verdict, as --json prints it."""
    verdict = "accept_after_extraction" if plan.extracted else "accept"
    return {"verdict": verdict, "plan_hash": plan.plan_hash, "steps": list(map(step_json, plan.steps)), "errors": []}


def refused(drift: PayloadDrift) -> dict[str, Any]:
    """The other one."""
    return {"verdict": "reject", "plan_hash": None, "steps": [], "errors": drift.errors()}


def step_json(step: AdmittedStep) -> dict[str, Any]:
    """A step with every default written out."""
    shown = {"id": step.id, "index": step.index, "action": step.action}
    return shown | {"params": step.params, "needs": list(step.needs)}


def print_refusal(verdict: dict[str, Any]) -> None:
    """For people."""
    output.print_fields({"verdict": verdict["verdict"]})
    click.echo()
    rows = [[error["path"] or "(all of it)", error["kind"], error["message"]] for error in verdict["errors"]]
    output.print_table(["path", "kind", "message"], rows)
    if any(error["kind"] == Kind.UNKNOWN_ACTION for error in verdict["errors"]):
        output.note(registry.NAMED_BY)


def _context_hash(text: str | None) -> str:
    try:
        return hash_of(context_object(text))
    except NotCanonical as wrong:
        raise click.UsageError(f"--context: {wrong}") from None
