"""One day of the shop: orders come in, a worker is killed half way, all is followed to its end, printed and audited."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.orders import books, press, shop
from examples.orders.crew import STEP_WORKERS, Crew, at_work
from examples.orders.floor import Floor, Held, Progress, belongs_to
from examples.orders.screen import Row, Screen, open_screen
from orchestrator.local.interrupts import Interrupts

LIMIT_S = 50.0  # from the first order on
LOOK_S = 0.15


@dataclass(frozen=True)
class Kill:
    """at: ms since the epoch; steps: what the worker was running."""

    worker: str
    at: int
    steps: list[Held]


@dataclass
class Shift:
    """One day's work: what was ordered, what became of it."""

    orders: list[shop.Order]
    runs: dict[str, shop.Order]
    kill: Kill | None = None
    recovered: int | None = None
    progress: Progress | None = None
    printed: press.Printed | None = None


def run(home: Path, out: Path, interrupts: Interrupts) -> bool:
    """Open the shop, work through the orders, check the books, close. False: something is not as it should be."""
    shift = Shift(shop.orders(), {})
    with open_screen() as screen:
        screen.say("starting the server, planner, control, supervisors, beat and two step workers")
        with at_work(home, interrupts) as crew:
            work(crew, shift, screen)
            rows = audit(home, out, shift)
            screen.report(rows)
    return all(row.good for row in rows)


def work(crew: Crew, shift: Shift, screen: Screen) -> None:
    """Submit everything, kill one worker half way, follow to the end, print the invoices."""
    from orchestrator.cli.services import Services
    from orchestrator.client import Client
    from orchestrator.settings import settings

    services, client = Services(settings()), Client()
    floor = Floor(services.lookup, services.store)
    end = time.monotonic() + LIMIT_S
    screen.say(f"all ready; {len(shift.orders)} orders come in")
    for order in shift.orders:
        answer = client.submit(
            planner="orders.fulfil", context=order.model_dump(), request_id=order.id, session_id=order.customer
        )
        shift.runs[answer.run_id] = order
        floor.add(answer.run_id)
        screen.show(floor.look(), shift.orders)
    while time.monotonic() < end and not _done(shift):
        look(crew, floor, shift, screen)
        time.sleep(LOOK_S)
    fulfilled = [order for run_id, order in shift.runs.items() if run_id in floor.fulfilled()]
    shift.printed = press.print_invoices(fulfilled, screen)


def look(crew: Crew, floor: Floor, shift: Shift, screen: Screen) -> None:
    """One look at the floor."""
    shift.progress = floor.look()
    screen.show(shift.progress, shift.orders)
    if shift.kill is None and 2 * shift.progress.steps_done >= steps_of(shift.orders):
        shift.kill = kill_one(crew, floor)
        if shift.kill:
            screen.say(f"killed {shift.kill.worker} (SIGKILL, whole process group) while it ran {_steps(shift.kill)}")
    elif shift.kill and shift.recovered is None:
        shift.recovered = floor.recovered_at(shift.kill.steps)
        if shift.recovered:
            screen.say(f"its steps are done again, {_seconds(shift)} s after the kill")


def kill_one(crew: Crew, floor: Floor) -> Kill | None:
    """Kill the worker that has just begun most; None if neither has begun anything that takes a moment."""
    running = floor.running()
    held = {name: [one for one in running if belongs_to(one.pid, crew.group(name))] for name in STEP_WORKERS}
    victim = max(held, key=lambda name: sum(one.fresh for one in held[name]))
    if not any(one.fresh for one in held[victim]):
        return None
    at = time.time_ns() // 1_000_000
    crew.kill(victim)
    # what it still holds now, it held when it died; what it finished in the last moment is not counted
    still = {one.held for one in floor.running()}
    return Kill(victim, at, [one.held for one in held[victim] if one.held in still])


def steps_of(orders: Sequence[shop.Order]) -> int:
    """Steps of all plans together: for each line a check and a parcel, for each order a charge and an invoice."""
    return sum(2 * len(order.lines) + 2 for order in orders)


def _done(shift: Shift) -> bool:
    ended = shift.progress is not None and shift.progress.ended == len(shift.orders)
    return ended and (shift.kill is None or shift.recovered is not None)


def _steps(kill: Kill) -> str:
    return "1 step" if len(kill.steps) == 1 else f"{len(kill.steps)} steps"


def _seconds(shift: Shift) -> str:
    assert shift.kill is not None
    assert shift.recovered is not None
    return f"{(shift.recovered - shift.kill.at) / 1000:.1f}"


def audit(home: Path, out: Path, shift: Shift) -> list[Row]:
    """The table at the end: what was to be, what is, and whether that is good."""
    assert shift.progress is not None
    orders, progress = shift.orders, shift.progress
    charged, parcels = books.charges(home / "ledger.db", orders), books.parcels(home)
    expected, lines = sum(order.cents for order in orders), sum(len(order.lines) for order in orders)
    invoices = books.copy_invoices(home, shift.runs, out)
    twice, stuck = charged.twice + parcels.twice, len(orders) - progress.ended
    return [
        Row("orders fulfilled", f"{progress.succeeded} of {len(orders)}", progress.succeeded == len(orders)),
        Row(
            "charged in total", f"{shop.money(charged.charged)} of {shop.money(expected)}", charged.charged == expected
        ),
        Row("parcels booked", f"{parcels.bookings} of {lines}", parcels.bookings == lines),
        Row("invoices", f"{invoices} of {len(orders)}, in {out}", invoices == len(orders)),
        _printed(home, out, shift),
        Row("effects applied twice", str(twice), twice == 0),
        Row("runs stuck", str(stuck), stuck == 0),
        _recovery(shift),
    ]


def _printed(home: Path, out: Path, shift: Shift) -> Row:
    printed, of = shift.printed, len(shift.orders)
    assert printed is not None
    if printed.run_id is None or printed.rung is None:
        return Row("invoices printed", printed.missing, printed.good)
    count = books.copy_printed(home, printed.run_id, out)
    return Row("invoices printed", f"{count} of {of}, checksums agree, rung {printed.rung}", count == of)


def _recovery(shift: Shift) -> Row:
    if shift.kill is None:
        return Row("from kill to recovery", "no worker was killed", good=False)
    if shift.recovered is None:
        return Row("from kill to recovery", f"not within {LIMIT_S:g} s, for {_steps(shift.kill)}", good=False)
    return Row("from kill to recovery", f"{_seconds(shift)} s for {_steps(shift.kill)}", good=bool(shift.kill.steps))
