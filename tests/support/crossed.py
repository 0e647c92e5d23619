"""What not to do, as real workers would do it: results and effects kept by session, a lock held by action.

Loaded as one more module of MANDOR_ACTIONS, it bends the worker that loads it. The test of two runs must fail with it.
"""

import json
from typing import Any

from orchestrator.ledger import effects
from orchestrator.store import guard, keys
from orchestrator.store.replies import Busy, Granted
from schemas.ids import RunRef

_part = keys.Keys.part
_claim = guard.Guard.claim_step
_look = effects.EffectRows.look
_land = effects.EffectRows.land
_sessions: dict[str, str] = {}


def part_by_session(self: keys.Keys, ref: RunRef, part: str) -> str:
    """Results of all runs of a session under one key."""
    own = _part(self, ref, part)
    return own.replace(f":run:{ref.run_id}:", ":run:") if part == "results" and ref.session != "-" else own


def claim_with_lock_by_action(self: guard.Guard, ref: RunRef, step_id: str, **how: Any) -> Any:
    """One lock for all steps that have the same action."""
    claim = _claim(self, ref, step_id, **how)
    if not isinstance(claim, Granted):
        return claim
    _sessions[ref.run_id] = ref.session
    name = f"{self._scripts.keys.prefix(0)}lock:{json.loads(claim.step_text)['action']}"
    taken = self._scripts.tell("SET", name, ref.run_id, "NX", "PX", 300)
    return claim if taken or step_id == "charge" else Busy()


def by_session(run_id: str) -> str:
    return _sessions.get(run_id, run_id)


def look_by_session(self: Any, run_id: str, *how: Any, **more: Any) -> Any:
    return _look(self, by_session(run_id), *how, **more)


def land_by_session(self: Any, run_id: str, *how: Any, **more: Any) -> Any:
    return _land(self, by_session(run_id), *how, **more)


keys.Keys.part = part_by_session  # type: ignore[method-assign]
guard.Guard.claim_step = claim_with_lock_by_action  # type: ignore[method-assign]
effects.EffectRows.look = look_by_session  # type: ignore[method-assign]
effects.EffectRows.land = land_by_session  # type: ignore[method-assign]
