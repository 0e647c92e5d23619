"""`mandor webhook …`: callbacks, tried and sent again by hand."""

import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from orchestrator.cli import output
from orchestrator.cli.command import NO, Group
from orchestrator.cli.services import services
from orchestrator.cli.waiting import waiting_for
from orchestrator.errors import DecisionRefused
from orchestrator.telemetry.text import printable
from schemas.callback import event_text, read_url
from schemas.issues import Located

if TYPE_CHECKING:
    from orchestrator.deliveries.schedule import Answer
    from orchestrator.settings import Settings


@click.group("webhook", cls=Group)
def group() -> None:
    """Try a callback's URL; have one sent again."""


@group.command("test")
@click.argument("url", metavar="URL")
def test(url: str) -> None:
    """Post a signed event of type mandor.test to URL, and print what came back. Exit 0 if that was 2xx.

    From this machine, with the settings of this process; callbacks are posted by workers on the queue `deliver`.

    \b
    Examples:
      mandor webhook test https://example.com/hooks/mandor
      mandor webhook test https://example.com/hooks/mandor --json | jq .status_code
    """
    try:
        read_url(url)
    except Located as wrong:
        raise click.UsageError(wrong.message) from None
    message_id = f"msg_test_{uuid4().hex}"
    with waiting_for("waiting for the answer"):
        answer = _tried(services().settings, message_id, url)
    fields = {"id": message_id, "status_code": answer.status_code, "error": answer.error, "message": str(answer)}
    if output.as_json():
        output.print_json(fields)
    else:
        click.echo(printable(str(answer)))
    if answer.error is not None:
        click.get_current_context().exit(NO)


def _tried(given: "Settings", message_id: str, url: str) -> "Answer":
    from orchestrator.deliveries import deliver, signature

    now = time.time()
    body = event_text("mandor.test", round(now * 1000), {})
    headers = signature.headers(message_id, int(now), body, deliver.keys_of(given))
    return deliver.poster_of(given).post(url, headers, body)


@group.command("redeliver")
@click.argument("run_id", metavar="ID")
def redeliver(run_id: str) -> None:
    """Have the callback about a run's newest end posted again, under the id it had: now, by a worker on `deliver`.

    One that was given up is better replayed with its letter: `mandor dlq replay`.

    \b
    Examples:
      mandor webhook redeliver 0190aa6e-5f1c-8a3e-9d5b-2f6c1d7e8a90
    """
    with waiting_for("reading the run"):
        tools = services()
        row = tools.lookup.find(run_id)
        told = tools.ledger.deliveries.newest_of(row.run_id)
    if told is None:
        why = "nobody asked to be told of its end" if row.callback is None else "it has not ended"
        raise DecisionRefused(f"run {row.run_id} has no callback to send again: {why}", path="run_id")
    if not tools.ledger.deliveries.send_again(told.id):
        raise DecisionRefused(f"callback {told.id} is being sent already", hint=f"see `mandor run show {row.run_id}`")
    fields: dict[str, Any] = {"run_id": row.run_id, "id": told.id, "url": told.url}
    if output.as_json():
        output.print_json(fields)
    else:
        click.echo(f"callback {told.id} to {printable(told.url)} is due again")
