"""From an order to a plan.

A small order is a plain list: each step waits for the one before it. From three lines on the stock checks start
together, and so do the invoice and all parcels once the charge is through. At the end of the day another plan has a
command print the invoices.
"""

from examples.orders.shop import Line, Order, Orders, money
from schemas.plan import Step
from workers import ExecutionPlan, PlanContext, planner, step

WIDE = 3  # lines
PRINT_MS = 20_000
# each invoice begins with its name, and becomes a file of that name and a page of one sheet
PRINT = r"""
awk '
    function plain(line) { gsub(/&/, "\\&amp;", line); gsub(/</, "\\&lt;", line); return line }
    BEGIN { sheet = "invoices.html"; print "<!doctype html><meta charset=utf-8><title>Invoices</title><pre>" > sheet }
    /^INVOICE / { close(page); page = $2 ".txt"; print "<hr>" > sheet }
    { print > page; print plain($0) > sheet }
    END { print "</pre>" > sheet }
' invoices.txt && sha256sum order-*.txt > SHA256SUMS && wc -l < SHA256SUMS
"""


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


@planner("orders.print")
def print_invoices(fulfilled: Orders, ctx: PlanContext) -> ExecutionPlan:
    """Render the invoices of these orders and checksum them, with the programs of the system."""
    content = "".join(map(invoice_text, fulfilled.orders))
    written = step("create_file", id="invoices", needs=[], path="invoices.txt", content=content)
    return ctx.plan(written, step("run_command", id="print", needs=["invoices"], command=PRINT, timeout_ms=PRINT_MS))


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
