"""The world outside, and what the steps of an exploration do to it.

An action is one act of its class. What may come of it besides its success (it raises before the act, or after it; it
vouches for having done nothing; it is not yet time) is the explorer's choice.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from schemas.states import EffectClass
from tests.explorer.operations import Answer, Gate, Op
from tests.explorer.written import SALE
from workers import Referable
from workers.context import Context, PermanentError
from workers.outcomes import NoEffect, Snooze
from workers.registry import Registry

What = Literal["do", "undo"]


class Params(BaseModel):
    x: Annotated[int, Referable]


class Done(BaseModel):
    x: int


@dataclass(frozen=True, order=True)
class Seen:
    """One step as the world saw it. sought: somebody has come to undo it; slipped: it acted after that, by a process
    that was past its last guard when its claim was ended; word: a person has said that it did not happen.
    """

    did: int = 0
    undone: int = 0
    stands: bool = False
    sought: bool = False
    slipped: bool = False
    word: bool = False
    keys: tuple[str, ...] = ()


World = tuple[tuple[str, Seen], ...]


def changed(world: World, step_id: str, seen: Seen) -> World:
    return tuple((name, seen if name == step_id else old) for name, old in world)


def acted(seen: Seen, what: What, key: str, effect: str, *, in_doubt: bool, ended: bool) -> Seen:
    """One act upon the world. Who knows its key does nothing more; what is idempotent is so already; and who undoes in
    doubt looks first. ended: somebody has ended the claim of who acts.
    """
    slips = what == "do" and ended and seen.sought
    seen = replace(seen, sought=seen.sought or what == "undo")
    if in_doubt and not seen.stands:
        return seen
    if effect == EffectClass.KEYED and key in seen.keys:
        return seen
    again = 0 if effect == EffectClass.IDEMPOTENT else 1
    keys = (*seen.keys, key) if effect == EffectClass.KEYED else seen.keys
    if what == "do":
        did = max(1, seen.did + again)
        return replace(seen, did=did, stands=True, slipped=seen.slipped or slips, keys=keys)
    return replace(seen, undone=max(1, seen.undone + again), stands=False, keys=keys)


def outcomes(op: Op) -> list[tuple[str, bool, Answer]]:
    """What may become of an act besides its success: a word, whether it happens, and what its process meets."""
    what, effect = op.args[0], op.args[3]
    found = [
        ("raises, nothing done", False, Answer(error=RuntimeError("no"))),
        ("raises NoEffect", False, Answer(error=NoEffect("it did not happen"))),
        ("raises for good, nothing done", False, Answer(error=PermanentError("never"))),
    ]
    if effect != EffectClass.PURE:
        found += [("acts, then raises", True, Answer(error=RuntimeError("no answer")))]
    if what == "do":
        found += [("acts, then snoozes", True, Answer(Snooze(1)))]
    return found


def actions(gate: Gate, *, attempts: int, probed: bool) -> Registry:
    """One action of each class, named as it, and one that fails."""
    registry = Registry()
    for effect in ("pure", "idempotent", "transactional", "keyed", "once"):
        _declare(registry, gate, effect, attempts, probed=probed and effect in ("keyed", "once"))

    @registry.action("fails", effect="pure", attempts=attempts)
    def fails(params: Params, ctx: Context) -> Done:
        raise PermanentError("it will never work")

    return registry


def _declare(registry: Registry, gate: Gate, effect: Any, attempts: int, *, probed: bool) -> None:
    @registry.action(effect, effect=effect, attempts=attempts)
    def act(params: Params, ctx: Context) -> Any:
        ctx.check()
        said = gate.through(_act("do", ctx, effect, params.x))
        if not isinstance(said, Snooze) and effect == "transactional":
            ctx.effect(SALE, Done(x=1))
        return said or Done(x=1)

    def take_back(params: Params, done: Done | None, ctx: Context) -> None:
        gate.through(_act("undo", ctx, effect, params.x))
        if effect == "transactional":
            ctx.effect(SALE, None)

    def look(params: Params, ctx: Context) -> Done | None:
        return Done(x=1) if gate.through(Op("world", "look", (ctx.step_id,))) else None

    if effect != "pure":
        act.compensation(take_back)
    if probed:
        act.probe(look)


def _act(what: What, ctx: Context, effect: str, x: int) -> Op:
    return Op("world", "act", (what, ctx.step_id, ctx.idempotency_key, effect, ctx.fencing_token, ctx.in_doubt, x))
