"""Mandor: a plan of three steps and one that puts together what they said.

Effects are `keyed` where the world knows keys, else `once`, with a probe where it can be asked. Nothing is undone, as
nothing is on the other sides.
"""

import json
from typing import Annotated, Any
from uuid import NAMESPACE_OID, uuid5

from pydantic import BaseModel

from benchmarks.faults.work import END, LIMIT_S, PARTS, SENDING, SENT, SESSION, act, effects, said
from orchestrator import dispatch
from orchestrator.app import app  # noqa: F401  # the caller's way to the broker
from orchestrator.client import Client
from orchestrator.errors import NotFound
from orchestrator.policies import FROM_BROKER
from orchestrator.settings import settings
from orchestrator.store.replies import Dispatch
from schemas.canonical import hash_of
from schemas.ids import run_id_for
from schemas.states import RUN_TERMINAL
from workers import Context, Referable, action
from workers.faults import log
from workers.faults.deeds import pass_by


class Part(BaseModel):
    """Which part of which run."""

    run: str
    part: str


class Said(BaseModel):
    """What it contributes."""

    text: str


class Total(BaseModel):
    """What all three do."""

    first: Annotated[str, Referable]
    second: Annotated[str, Referable]
    third: Annotated[str, Referable]


class Sum(BaseModel):
    """The run's result."""

    said: list[str]


@action("bench.blind", effect="once", timeout_s=LIMIT_S)
def blind(params: Part, ctx: Context) -> Said:  # noqa: ARG001
    """Act on a world that cannot be asked."""
    return _say(params, "blind")


@action("bench.asked", effect="once", timeout_s=LIMIT_S)
def asked(params: Part, ctx: Context) -> Said:  # noqa: ARG001
    """Act on a world that can."""
    return _say(params, "asked")


@asked.probe
def find(params: Part, ctx: Context) -> Said | None:  # noqa: ARG001
    """Ask it."""
    happened = effects(log.folder(), params.run, params.part)
    return Said(text=said(params.run, params.part)) if happened else None


@action("bench.keyed", effect="keyed", timeout_s=LIMIT_S)
def keyed(params: Part, ctx: Context) -> Said:  # noqa: ARG001
    """Act on a world that knows keys."""
    return _say(params, "keyed")


@action("bench.total", effect="pure")
def total(params: Total, ctx: Context) -> Sum:  # noqa: ARG001
    """Put together what the parts said."""
    return Sum(said=[params.first, params.second, params.third])


_send_all = dispatch._send_all  # noqa: SLF001  # every message passes here


def _pass_by(app: Any, wave: tuple[Dispatch, ...]) -> None:  # noqa: F811  # as the original names it
    """Whoever sends the end of a run can be stopped before and behind it, as the others' workers can."""
    ends = [message.ref.run_id for message in wave if (message.kind, message.step_id) == ("step", "total")]
    for run_id in ends:
        pass_by(SENDING, run_id, END)
    _send_all(app, wave)
    for run_id in ends:
        pass_by(SENT, run_id, END)


dispatch._send_all = _pass_by  # noqa: SLF001


def submit(run: str, world: str) -> None:
    """Send a run."""
    policy = {"on_failure": "stop", "limits": {"lease_s": settings().lease_s}}
    Client().submit(plan=_plan(run, world), session_id=SESSION, request_id=run, policy=policy)


def look(run: str) -> tuple[str, Any]:
    """How it stands."""
    try:
        view = Client().show(run_id_for(FROM_BROKER, SESSION, run))
    except NotFound:
        return "going", None
    if view.status == "succeeded":
        return "done", view.steps[-1].result["said"]
    return ("failed", view.status) if view.status in RUN_TERMINAL else ("going", None)


def _say(params: Part, world: str) -> Said:
    return Said(text=act(params.run, params.part, world))


def _plan(run: str, world: str) -> str:
    parts: list[dict[str, Any]] = [
        {"id": part, "action": f"bench.{world}", "params": {"run": run, "part": part}, "needs": []} for part in PARTS
    ]
    whole = {part: {"$result": part, "path": "/text"} for part in PARTS}
    steps = [*parts, {"id": "total", "action": "bench.total", "params": whole, "needs": list(PARTS)}]
    return json.dumps({"plan_id": str(uuid5(NAMESPACE_OID, run)), "context_hash": hash_of({}), "steps": steps})
