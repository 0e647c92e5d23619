"""The end of the day: a command renders and checksums the invoices of fulfilled orders, in a sandbox or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass

from examples.orders.screen import Screen
from examples.orders.shop import Order

LIMIT_S = 40.0


@dataclass(frozen=True)
class Printed:
    """run_id: of the run whose workspace holds the sheets; rung: what fenced the command in.

    missing: where there are none, why; good: whether that is as it should be.
    """

    run_id: str | None = None
    rung: str | None = None
    missing: str = ""
    good: bool = False


def print_invoices(orders: Sequence[Order], screen: Screen) -> Printed:
    """Have them printed by one more run, and wait for its end."""
    missing = _missing_sandbox()
    if missing is not None:
        return Printed(missing=f"left out, no rung of the sandbox is to be had here: {missing}", good=True)
    if not orders:
        return Printed(missing="none to print")
    screen.say(f"a command prints {len(orders)} invoices, in a sandbox")
    return _printed(orders)


def _missing_sandbox() -> str | None:
    """Of each rung of the ladder why it does not work here; None where one does."""
    from orchestrator.settings import settings
    from workers.sandbox import ladder

    found = ladder.find(settings())
    return None if found.best else "; ".join(f"{rung}: {why}" for rung, why in found.missing.items())


def _printed(orders: Sequence[Order]) -> Printed:
    from orchestrator.client import Client

    client, context = Client(), {"orders": [order.model_dump() for order in orders]}
    run_id = client.submit(planner="orders.print", context=context, request_id="print").run_id
    view = client.wait(run_id, LIMIT_S)
    result = next((step.result for step in view.steps if step.action == "run_command"), None)
    if result is None:
        return Printed(run_id, missing=f"the run that prints them is {view.status}: {view.reason}")
    return Printed(run_id, result["rung"])
