"""From an order to a plan.

A small order is a plain list: each step waits for the one before it. From three lines on the stock checks start
together, and so do the invoice and all parcels once the charge is through.
"""

from examples.orders.shop import Line, Order, money
from schemas.plan import Step
from workers import ExecutionPlan, PlanContext, planner, step

WIDE = 3  # lines


@planner("orders.fulfil")
def fulfil(order: Order, ctx: PlanContext) -> ExecutionPlan:
    """Check the stock, charge the balance, write the invoice, book a parcel for each line."""
    wide = len(order.lines) >= WIDE
    checks = [_check(number, line, wide=wide) for number, line in enumerate(order.lines, 1)]
    charge = step(
        "mutate_record",
        id="charge",
        needs=[f"stock-{number}" for number in range(1, len(checks) + 1)],
        entity_id=order.account,
        changes={order.id: -order.cents},
    )
    invoice = step("create_file", id="invoice", needs=["charge"], path=f"{order.id}.txt", content=invoice_text(order))
    parcels = [_parcel(order, number, line, wide=wide) for number, line in enumerate(order.lines, 1)]
    return ctx.plan(*checks, charge, invoice, *parcels)


def _check(number: int, line: Line, *, wide: bool) -> Step:
    needs: list[str] | None = [] if wide else None
    return step("orders.check_stock", id=f"stock-{number}", needs=needs, sku=line.sku, quantity=line.quantity)


def _parcel(order: Order, number: int, line: Line, *, wide: bool) -> Step:
    return step(
        "carrier.book",
        id=f"parcel-{number}",
        needs=["charge"] if wide else None,
        order_id=order.id,
        sku=line.sku,
        weight_g={"$result": f"stock-{number}", "path": "/weight_g"},
    )


def invoice_text(order: Order) -> str:
    """The invoice, fit for a plain printer."""
    lines = [f"  {line.quantity:>3} x {line.name:<28}{money(line.cents):>12}" for line in order.lines]
    head = [f"INVOICE {order.id}", f"{order.customer}, {order.city}", ""]
    return "\n".join([*head, *lines, f"  {'total':<34}{money(order.cents):>12}", "", "paid from your balance", ""])
