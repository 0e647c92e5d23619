"""`mandor run …`: submit work and see what became of it."""

import json
from collections.abc import Mapping
from typing import Any

import click

from orchestrator.cli import decide, follow, inputs, listing, output, why
from orchestrator.cli.command import NO, Group, Interrupted
from orchestrator.cli.policy import print_policy
from orchestrator.cli.reach import check_reach
from orchestrator.cli.services import Services, services
from orchestrator.cli.waiting import waiting_for
from orchestrator.errors import NotFound
from orchestrator.telemetry.text import printable
from schemas.dead_letter import DeadLetterStatus
from schemas.run import (
    ArtifactView,
    CallbackView,
    CompensationView,
    ErrorView,
    EventView,
    RunView,
    StepView,
    SubmitAnswer,
)
from schemas.states import RunStatus

SHOWN_STEPS = 100
READING = "reading the run"
SECONDS = click.FloatRange(min=0, min_open=True)
INTERESTING = frozenset({"running", "STALE", "failed", "in_doubt", "backoff"})


@click.group("run", cls=Group)
def group() -> None:
    """Submit a run, follow it, decide about it, read its results."""


group.add_command(listing.command)


@group.command("submit")
@click.option("--goal", metavar="TEXT", help="What is wanted, for the planner.")
@click.option("--goal-file", metavar="FILE|-", help="The same from a file.")
@click.option("--context", metavar="JSON", help="A JSON object: what the planner is to know.")
@click.option("--context-file", metavar="FILE|-", help="The same from a file.")
@click.option("--planner", metavar="NAME", help="Who makes the plan.")
@click.option("--plan", "plan_file", metavar="FILE|-", help="A ready plan (JSON) instead of a planner.")
@click.option("--session", "session_id", metavar="ID", help="Label that groups runs.")
@click.option("--request-id", metavar="ID", help="Same id, same submission: one run, however often it is sent.")
@click.option("--policy", "policy_file", metavar="FILE|-", help="JSON that narrows the policy for this run.")
@click.option("--deadline", "deadline_s", type=SECONDS, metavar="SECONDS", help="The run fails if it takes longer.")
@click.option("--callback", metavar="URL", help="Where the end of the run is posted to, signed.")
@click.option("--wait", is_flag=True, help="Follow the run to its end; exit 0 only if it succeeded.")
@click.option(
    "--timeout", "timeout_s", type=SECONDS, metavar="SECONDS", help="With --wait: stop following after this long."
)
def submit(wait: bool, timeout_s: float | None, **options: Any) -> None:
    """Submit a run and print its id.

    \b
    Examples:
      mandor run submit --planner orders.fulfil --context-file order.json
      mandor run submit --plan plan.json --request-id nightly-2026-02-01 --wait
      mandor run submit --plan plan.json --callback https://example.com/hooks/mandor
      echo '{"order": 7}' | mandor run submit --planner orders.fulfil --context-file -
      ID=$(mandor run submit --plan plan.json)
    """
    if timeout_s is not None and not wait:
        raise click.UsageError("--timeout is about --wait; give both")
    if (options["planner"] is None) == (options["plan_file"] is None):
        raise click.UsageError("say who plans: --planner NAME, or --plan FILE for a ready plan")
    fields = submission(**options)
    tools = services()
    answer = _submit(tools, fields)
    if wait:
        _wait(tools, answer, timeout_s)
    elif output.as_json():
        output.print_json(answer.model_dump(mode="json"))
    else:
        _print_answer(answer)


def _submit(tools: Services, fields: dict[str, Any]) -> SubmitAnswer:
    with waiting_for("waiting for the answer to the submission"):
        check_reach(tools.settings)
        try:
            return tools.client.submit(**fields)
        except KeyboardInterrupt:
            raise Interrupted("it may have been accepted; `mandor run list` shows whether it was") from None


def submission(
    goal: str | None,
    goal_file: str | None,
    context: str | None,
    context_file: str | None,
    plan_file: str | None,
    policy_file: str | None,
    **plain: Any,
) -> dict[str, Any]:
    """The submission that the options describe, without what was left out."""
    inputs.one_stdin(goal_file, context_file, plan_file, policy_file)
    fields = {
        "goal": inputs.one_text("goal", goal, goal_file),
        "context": inputs.one_text("context", context, context_file),
        "plan": inputs.read_text(plan_file) if plan_file else None,
        "policy": _policy(policy_file),
        **plain,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _policy(source: str | None) -> dict[str, Any] | None:
    policy = inputs.read_policy(source)
    return None if policy is None else policy.model_dump(mode="json", exclude_defaults=True)


def _print_answer(answer: SubmitAnswer) -> None:
    click.echo(answer.run_id)
    if not answer.created:
        output.note(f"the same submission was there before; its run is {answer.status}")


def _wait(tools: Services, answer: SubmitAnswer, timeout_s: float | None) -> None:
    if not output.as_json():
        _print_answer(answer)
    screen = follow.terminal_screen(stderr=True) or follow.Silent()
    with waiting_for(READING):
        following = tools.follower(answer.run_id)
    follow.to_the_end(following, screen, timeout_s)
    run = tools.lookup.run(answer.run_id)
    if output.as_json():
        output.print_json({**answer.model_dump(mode="json"), **run.model_dump(mode="json")})
    else:
        print_run(run, all_steps=False)
    if run.status != RunStatus.SUCCEEDED:
        click.get_current_context().exit(NO)


@group.command("watch")
@click.argument("run_id", metavar="ID")
@click.option("--timeout", "timeout_s", type=SECONDS, metavar="SECONDS", help="Stop following after this long.")
def watch(run_id: str, timeout_s: float | None) -> None:
    """Follow a run to its end: a table that moves on a terminal, a line for each change in a pipe.

    Exit 0 if the run succeeded, 1 if it ended otherwise. Ctrl-C stops following; the run goes on. With --json each
    transition is an object on a line, from the run's first, and the last line says how it ended.

    \b
    Examples:
      mandor run watch ID
      mandor run watch ID --json | jq -c '.moves[] | select(.status == "failed")'
      mandor run watch ID > run.log && echo fine
    """
    with waiting_for(READING):
        run = services().follower(run_id)
    elsewhere = follow.Objects() if output.as_json() else follow.Lines()
    follow.to_the_end(run, follow.terminal_screen() or elsewhere, timeout_s)
    if run.status != RunStatus.SUCCEEDED:
        if not output.as_json():
            output.note(f"`mandor run show {run.run_id}` tells more")
        click.get_current_context().exit(NO)


@group.command("show")
@click.argument("run_id", metavar="ID")
@click.option("--all", "all_steps", is_flag=True, help=f"All steps, not only {SHOWN_STEPS} of them.")
def show(run_id: str, all_steps: bool) -> None:
    """Show where a run and each of its steps stand.

    \b
    Examples:
      mandor run show 0190aa6e-5f1c-8a3e-9d5b-2f6c1d7e8a90
      mandor run show ID --json | jq -r '.steps[] | select(.status == "failed") | .error.message'
    """
    with waiting_for(READING):
        run = services().lookup.run(run_id)
    if output.as_json():
        output.print_json(run.model_dump(mode="json"))
    else:
        print_run(run, all_steps=all_steps)
        print_policy(run)


def print_run(run: RunView, *, all_steps: bool) -> None:
    """The run's fields, its steps, and what to look at next."""
    output.print_fields(_summary(run))
    steps = list(run.steps) if all_steps else chosen(run.steps)
    if steps:
        click.echo()
        rows = [_step_row(step) for step in steps]
        headers = ["#", "step", "action", "status", "attempt", "took"]
        with_error = any(step.error for step in steps)
        output.print_table(
            [*headers, "error"] if with_error else headers, rows if with_error else [row[:-1] for row in rows]
        )
    if len(steps) < len(run.steps):
        output.note(f"{len(run.steps) - len(steps)} more steps; --all shows them")
    if run.compensations:
        click.echo()
        rows = [_compensation_row(undo) for undo in run.compensations]
        output.print_table(["undoing", "action", "status", "attempt", "took", "error"], rows)
    _print_artifacts(run)
    for letter in run.dead_letters:
        dealt = "" if letter.status == DeadLetterStatus.OPEN else f", {letter.status}"
        output.note(f"dead letter {letter.id} ({letter.kind}{dealt}): mandor dlq show {letter.id}")


def _print_artifacts(run: RunView) -> None:
    """What was kept of the run's files, and where."""
    if run.artifacts:
        click.echo()
        rows = [_artifact_row(one) for one in run.artifacts]
        output.print_table(["file", "bytes", "kept at"], rows)


def _artifact_row(one: ArtifactView) -> list[output.Cell]:
    return [one.path, one.bytes, f"not kept: {one.left_out}" if one.left_out else f"{one.place}/{one.path}"]


def _summary(run: RunView) -> Mapping[str, output.Cell]:
    done = sum(step.status == "completed" for step in run.steps)
    took = (run.ended_at - run.created_at) if run.ended_at else None
    return {
        "run": run.run_id,
        "status": run.status,
        "reason": run.reason,
        "session": run.session_id,
        "request": run.request_id,
        "plan": run.plan_id,
        "generation": run.generation if run.generation > 1 else None,
        "created": output.when(run.created_at),
        "ended": output.when(run.ended_at),
        "took": None if took is None else output.duration(took),
        "ended by": output.when(run.ended_by),
        "steps": f"{done} of {len(run.steps)} completed" if run.steps else None,
        "error": _said(run.error),
        "callback": _callback(run.callback),
        "note": None if run.steps or not run.plan_hash else "its steps are not known any more",
    }


def _callback(told: CallbackView | None) -> str | None:
    """Where telling its end stands, in one line."""
    if told is None:
        return None
    answered = f"status {told.status_code}" if told.status_code else told.error
    tried = f"{told.attempts} attempt{'' if told.attempts == 1 else 's'}" if told.attempts else None
    next_one = f"next at {output.when(told.due_at)}" if told.due_at and told.attempts else None
    state = told.state.replace("_", " ")
    return ", ".join(filter(None, (f"{state}: {told.url}", answered, tried, next_one)))


def chosen(steps: tuple[StepView, ...]) -> list[StepView]:
    """As many steps as a person reads, those first that something is the matter with; in their own order."""
    if len(steps) <= SHOWN_STEPS:
        return list(steps)
    ranked = sorted(steps, key=lambda step: (step.status not in INTERESTING, step.index))
    return sorted(ranked[:SHOWN_STEPS], key=lambda step: step.index)


def _step_row(step: StepView) -> list[output.Cell]:
    took = (step.ended_at - step.started_at) if step.ended_at and step.started_at else None
    return [
        step.index,
        step.id,
        step.action,
        step.status,
        step.attempt or None,
        None if took is None else output.duration(took),
        _said(step.error),
    ]


def _compensation_row(undo: CompensationView) -> list[output.Cell]:
    took = (undo.ended_at - undo.started_at) if undo.ended_at and undo.started_at else None
    shown = None if took is None else output.duration(took)
    return [undo.step_id, undo.action, undo.status, undo.attempt or None, shown, _said(undo.error)]


def _said(error: ErrorView | None) -> str | None:
    """An error in one line: what kind, about which param or setting, and what is wrong with it."""
    return None if error is None else ": ".join(filter(None, (error.kind, error.path, error.message)))


@group.command("events")
@click.argument("run_id", metavar="ID")
def events(run_id: str) -> None:
    """List every transition of a run, oldest first.

    \b
    Examples:
      mandor run events ID
      mandor run events ID --json | jq -c 'select(.event == "step.committed")'
    """
    found = services().lookup.events(run_id)
    if output.as_json():
        for event in found:
            output.print_json(event.model_dump(mode="json"), one_line=True)
        return
    output.print_table(["version", "at", "event", "step", "attempt", "fence", "worker", "more"], map(_event_row, found))


def _event_row(event: EventView) -> list[output.Cell]:
    more = " ".join(f"{name}={value}" for name, value in event.details.items())
    at = output.clock(event.at)
    return [event.version, at, event.event, event.step_id, event.attempt, event.fence, event.worker_id, more]


@group.command("result")
@click.argument("run_id", metavar="ID")
@click.argument("step_id", metavar="[STEP]", required=False)
def result(run_id: str, step_id: str | None) -> None:
    """Print the results of a run's completed steps, or of one step, as JSON.

    \b
    Examples:
      mandor run result ID
      mandor run result ID charge
    """
    with waiting_for(READING):
        found = services().lookup.results(run_id)
    if step_id is None:
        _print_results(run_id, found)
        return
    if step_id not in found:
        raise NotFound(f"no result of a step {step_id}", path="step_id", hint=f"see `mandor run show {run_id}`")
    output.print_json(
        {"run_id": run_id, "step_id": step_id, "result": found[step_id]} if output.as_json() else found[step_id]
    )


def _print_results(run_id: str, found: Mapping[str, Any]) -> None:
    if output.as_json():
        output.print_json({"run_id": run_id, "results": found})
        return
    for step, value in found.items():
        click.echo(f"{printable(step)}: {printable(json.dumps(value, ensure_ascii=False))}")
    if not found:
        output.note("no step has completed yet")


for _command in (*decide.COMMANDS, why.command):
    group.add_command(_command)
