"""Plans as text, and the door with everything but the text filled in."""

import functools
import json
from typing import Any

from orchestrator.admission import Admission, Catalogue, Issue, PayloadDrift, validate_handoff
from orchestrator.settings import Settings
from schemas.policy import Policy
from workers.registry import catalogue, load_actions

PLAN_ID = "3f2b6c1e-9a4d-4c57-8e21-0b7d5a6f9c10"
HASH = "e4ce1f8b427a57eff40308ce66c6d3164963d093b0b6f541d127ed32995f4baa"
ENTITY = "9c1f0a52-7d3e-4b88-a6f4-2e5d7c8b9a01"


def plan_text(*steps: Any, **fields: Any) -> str:
    """A plan of these steps as JSON text; fields replace or add top-level keys."""
    return json.dumps({"plan_id": PLAN_ID, "context_hash": HASH, "steps": list(steps)} | fields)


def command(text: str = "true", **fields: Any) -> dict[str, Any]:
    """A run_command step."""
    return {"action": "run_command", "params": {"command": text}} | fields


def file(path: str = "a.txt", content: Any = "x", **fields: Any) -> dict[str, Any]:
    """A create_file step."""
    return {"action": "create_file", "params": {"path": path, "content": content}} | fields


def record(changes: Any, **fields: Any) -> dict[str, Any]:
    """A mutate_record step."""
    return {"action": "mutate_record", "params": {"entity_id": ENTITY, "changes": changes}} | fields


@functools.cache
def built_in() -> Catalogue:
    """The built-in actions."""
    load_actions(Settings())
    names = {"create_file", "run_command", "mutate_record"}
    actions = {name: spec for name, spec in catalogue().actions.items() if name in names}
    return Catalogue(actions)


def admit(
    raw: Any,
    known: Catalogue | None = None,
    policy: Policy | None = None,
    context_hash: str | None = None,
    finish_reason: str | None = None,
) -> Admission:
    """The door's verdict on the text, by the built-in actions unless told otherwise."""
    return validate_handoff(
        raw,
        catalogue=known or built_in(),
        policy=policy or Policy(),
        context_hash=context_hash,
        finish_reason=finish_reason,
    )


def refused(raw: Any, known: Catalogue | None = None, **more: Any) -> tuple[Issue, ...]:
    """The issues of a text that must be refused."""
    try:
        admit(raw, known, **more)
    except PayloadDrift as drift:
        return drift.issues
    raise AssertionError("the door let it in")


def faults(raw: Any, known: Catalogue | None = None, **more: Any) -> list[tuple[str, str]]:
    """Path and kind of each issue."""
    return [(issue.path, issue.kind) for issue in refused(raw, known, **more)]
