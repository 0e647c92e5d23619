"""What the storm's runs look like. A step id means the same action in every shape, so one run shows all classes."""

import json
from typing import Any, Final
from uuid import NAMESPACE_OID, uuid5

from schemas.run import Submission

PLANNER: Final = "storm.plan"
ALL: Final = "all"
PRICED: Final = {"$result": "price", "path": "/cents"}

SUCCEEDS: Final = frozenset({"succeeded"})
UNDONE: Final = frozenset({"compensated", "compensation_failed"})  # the latter only for undos of `once` steps
FAILS: Final = frozenset({"failed"})
OVERDUE: Final = UNDONE | FAILS  # or its time was over before anything was done
# a cancellation may come too late, before the plan, or before anything was done
CANCELLED: Final = SUCCEEDS | UNDONE | {"cancelled"}

ENDS: Final = {
    "single": SUCCEEDS,
    "letter": SUCCEEDS,
    "sequence": SUCCEEDS,
    "wide": SUCCEEDS,
    "diamond": SUCCEEDS,
    "flaky": SUCCEEDS,
    "undone": UNDONE,
    "hopeless": FAILS,
    "overdue": OVERDUE,
}
# of a hundred runs
SHARES: Final = {
    "single": 22,
    "letter": 12,
    "sequence": 12,
    "wide": 10,
    "diamond": 14,
    "flaky": 10,
    "undone": 12,
    "hopeless": 6,
    "overdue": 2,
}
OVERDUE_S: Final = 12  # what a run has that waits for an approval which never comes


def steps(shape: str, order: str) -> list[dict[str, Any]]:
    """The steps of a plan for this order."""
    return _SHAPES[shape](order)


def plan_text(shape: str, order: str) -> str:
    """A ready plan."""
    plan = {
        "plan_id": str(uuid5(NAMESPACE_OID, f"plan of {order}")),
        "context_hash": Submission(planner="x", context=context(shape, order)).context_hash(),
        "steps": steps(shape, order),
    }
    return json.dumps(plan)


def context(shape: str, order: str) -> dict[str, Any]:
    """What a run is submitted with, and a planner is told."""
    return {"order": order, "shape": shape}


def account(order: str) -> str:
    """The record that an order's booking changes."""
    return str(uuid5(NAMESPACE_OID, order))


def ids(shape: str) -> list[str]:
    """The steps of a shape."""
    return [one["id"] for one in steps(shape, "x")]


# ---- one function for each step


def _step(step_id: str, action: str, needs: tuple[str, ...], **params: Any) -> dict[str, Any]:
    return {"id": step_id, "action": action, "needs": list(needs), "params": params}


def _price(order: str, *needs: str) -> dict[str, Any]:
    return _step("price", "faults.price", needs, order=order)


def _note(order: str, *needs: str) -> dict[str, Any]:
    return _step("note", "create_file", needs, path="note.txt", content=order)


def _book(order: str, *needs: str) -> dict[str, Any]:
    return _step("book", "mutate_record", needs, entity_id=account(order), changes={"order": order})


def _charge(order: str, *needs: str) -> dict[str, Any]:
    return _step("charge", "faults.charge", needs, order=order, cents=PRICED if needs == ("price",) else 100)


def _insist(order: str, *needs: str) -> dict[str, Any]:
    return _step("insist", "storm.insist", needs, order=order, cents=200)


def _send(order: str, *needs: str) -> dict[str, Any]:
    return _step("send", "faults.send", needs, order=order)


def _end(order: str, *needs: str, fails: bool = False) -> dict[str, Any]:
    return _step("end", "storm.end", needs, order=order, fails=fails)


_SHAPES: Final = {
    ALL: lambda it: [_price(it), _charge(it, "price"), _note(it), _book(it), _insist(it), _send(it), _end(it, "send")],
    "single": lambda it: [_charge(it)],
    "letter": lambda it: [_send(it)],
    "sequence": lambda it: [_price(it), _charge(it, "price"), _book(it, "charge"), _send(it, "book")],
    "wide": lambda it: [
        *(make(it) for make in (_charge, _note, _book, _send)),
        _end(it, "charge", "note", "book", "send"),
    ],
    "diamond": lambda it: [_price(it), _charge(it, "price"), _book(it, "price"), _end(it, "charge", "book")],
    "flaky": lambda it: [_insist(it), _end(it, "insist")],
    "undone": lambda it: [
        _note(it),
        _book(it),
        _charge(it, "book"),
        _send(it, "charge"),
        _end(it, "note", "send", fails=True),
    ],
    "hopeless": lambda it: [_price(it), _end(it, "price", fails=True)],
    "overdue": lambda it: [_charge(it), _book(it), _end(it, "charge", "book")],
}
