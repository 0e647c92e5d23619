"""The world outside of an installation whose processes can die, and actions of every class that act on it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from orchestrator.ledger import Ledger
from schemas.ids import RunRef
from tests.support.deaths import Doors
from workers.context import Context, PermanentError, Snooze
from workers.plan_context import PlanContext
from workers.registry import Registry


class Params(BaseModel):
    x: int = 1


class Done(BaseModel):
    x: int


@dataclass
class World:
    """Outside: what was done there and taken back, in order, as (what, step, key).

    What has no more effect there leaves no line: what is keyed, under a key that was seen; what is idempotent, where it
    is so already. tried: what was tried; plan: what planners answer; told: whether a person has mended something.
    meanwhile: what goes on while the first process that comes to it is frozen; woken: how many changes there were when
    that woke up.
    """

    doors: Doors
    acts: list[tuple[str, str, str]] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    plan: dict[str, Any] = field(default_factory=dict)
    told: bool = False
    meanwhile: Callable[[], None] | None = None
    woken: int = 0

    def begin(self) -> None:
        """Another run: nothing has happened yet."""
        self.acts.clear()
        self.tried.clear()
        self.told = False

    def is_first(self, what: str) -> bool:
        """Whether this is tried for the first time, in whatever process."""
        first = what not in self.tried
        self.tried.add(what)
        return first

    def freeze(self) -> None:
        """Be gone for a while, and act upon none of it."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
            self.woken = len(self.doors.passed)

    def act(self, what: str, ctx: Context, effect: str) -> None:
        """One change outside."""
        self.doors.through(f"world {what}", lambda: self._change(what, ctx.step_id, ctx.idempotency_key, effect))

    def _change(self, what: str, step_id: str, key: str, effect: str) -> None:
        seen = (what, step_id, key) in self.acts
        is_so = self.stands(step_id) == (what == "do")
        if not (effect == "keyed" and seen) and not (effect == "idempotent" and is_so):
            self.acts.append((what, step_id, key))

    def count(self, what: str, step_id: str) -> int:
        """How often a step's effect was had, or taken back."""
        return sum((kind, step) == (what, step_id) for kind, step, _ in self.acts)

    def stands(self, step_id: str) -> bool:
        """Whether a step's effect was had and not taken back."""
        return self.count("do", step_id) > self.count("undo", step_id)


# ---- what steps do


def actions(world: World, ledger: Ledger) -> Registry:
    """One action of each class, named as it, that acts on the world and is taken back; and some that fail."""
    registry = Registry()
    _prepare_sales(ledger)
    for effect in ("pure", "idempotent", "keyed", "once"):
        _declare(registry, world, effect)
    _declare_sale(registry)
    _declare_failing(registry, world)
    _declare_flaky(registry, world)
    _declare_silent(registry, world)
    _declare_doubtful(registry, world)
    _declare_planners(registry, world)
    _declare_lasting(registry, world)
    _declare_frozen(registry, world)
    return registry


def _declare(registry: Registry, world: World, effect: Any) -> None:
    @registry.action(effect, effect=effect, attempts=4)
    def do(params: Params, ctx: Context) -> Done:
        world.act("do", ctx, effect)
        return Done(x=params.x)

    if effect != "pure":
        do.compensation(_undo_in(world, effect))


def _undo_in(world: World, effect: str) -> Callable[[Params, Done | None, Context], None]:
    def take_back(params: Params, done: Done | None, ctx: Context) -> None:
        if done is not None or world.stands(ctx.step_id):  # where it is in doubt, the other side is asked
            world.act("undo", ctx, effect)

    return take_back


def _declare_failing(registry: Registry, world: World) -> None:
    @registry.action("fails", effect="pure")
    def fails(params: Params, ctx: Context) -> Done:
        raise PermanentError("it will never work")

    @registry.action("until_told", effect="pure", attempts=3)
    def until_told(params: Params, ctx: Context) -> Done:
        if not world.told:
            raise PermanentError("nobody has told me")
        return Done(x=params.x)


def _declare_flaky(registry: Registry, world: World) -> None:
    @registry.action("flaky", effect="keyed", attempts=4)
    def flaky(params: Params, ctx: Context) -> Done:
        world.act("do", ctx, "keyed")
        if ctx.attempt == 1:
            raise RuntimeError("not yet")
        return Done(x=params.x)

    @registry.action("puts_off", effect="keyed", attempts=4)
    def puts_off(params: Params, ctx: Context) -> Done:
        if world.is_first(ctx.step_id):
            raise Snooze(3)
        world.act("do", ctx, "keyed")
        return Done(x=params.x)

    @registry.action("never", effect="keyed", attempts=100)
    def never(params: Params, ctx: Context) -> Done:
        world.act("do", ctx, "keyed")
        raise RuntimeError("not yet")

    for action in (flaky, puts_off, never):
        action.compensation(_undo_in(world, "keyed"))


def _declare_silent(registry: Registry, world: World) -> None:
    """Although it was done, no answer comes: ever, or the second time, when the first time it was not done."""

    @registry.action("unanswered", effect="once")
    def unanswered(params: Params, ctx: Context) -> Done:
        world.act("do", ctx, "once")
        raise TimeoutError("no answer")

    @registry.action("silent", effect="once")
    def silent(params: Params, ctx: Context) -> Done:
        if not world.is_first(ctx.step_id):
            world.act("do", ctx, "once")
        raise TimeoutError("no answer")

    for action in (unanswered, silent):
        action.compensation(_undo_in(world, "once"))


def _declare_doubtful(registry: Registry, world: World) -> None:
    """No answer comes: the first time, when it was not done; or ever, but it can be asked what it did."""

    @registry.action("unheard", effect="once")
    def unheard(params: Params, ctx: Context) -> Done:
        if world.is_first(ctx.step_id):
            raise TimeoutError("no answer")
        world.act("do", ctx, "once")
        return Done(x=params.x)

    @registry.action("asked", effect="once")
    def asked(params: Params, ctx: Context) -> Done:
        world.act("do", ctx, "once")
        raise TimeoutError("no answer")

    @asked.probe
    def look(params: Params, ctx: Context) -> Done | None:
        return Done(x=params.x) if world.stands(ctx.step_id) else None

    for action in (unheard, asked):
        action.compensation(_undo_in(world, "once"))


def _declare_planners(registry: Registry, world: World) -> None:
    @registry.planner("hesitates", repairs=True)
    def hesitates(ctx: PlanContext) -> str:
        if world.is_first("hesitates"):
            raise ConnectionError("no model there")
        return json.dumps(world.plan) if ctx.repair else "I shall think about it"

    @registry.planner("is_away")
    def is_away(ctx: PlanContext) -> str:
        raise ConnectionError("no model there")


def _declare_lasting(registry: Registry, world: World) -> None:
    @registry.action("stays", effect="keyed")
    def stays(params: Params, ctx: Context) -> Done:
        world.act("do", ctx, "keyed")
        return Done(x=params.x)

    @stays.compensation
    def cannot(params: Params, done: Done | None, ctx: Context) -> None:
        raise PermanentError("it cannot be taken back")

    @registry.action("stubborn", effect="keyed", attempts=4)
    def stubborn(params: Params, ctx: Context) -> Done:
        world.act("do", ctx, "keyed")
        return Done(x=params.x)

    @stubborn.compensation
    def when_told(params: Params, done: Done | None, ctx: Context) -> None:
        if not world.told:
            raise PermanentError("nobody has told me")
        _undo_in(world, "keyed")(params, done, ctx)


def _declare_frozen(registry: Registry, world: World) -> None:
    """They act when they wake up, behind every guard; one of them has no answer then."""

    @registry.action("wakes", effect="keyed", attempts=1)
    def wakes(params: Params, ctx: Context) -> Done:
        world.freeze()
        world.act("do", ctx, "keyed")
        return Done(x=params.x)

    @registry.action("wakes_and_raises", effect="keyed", attempts=1)
    def wakes_and_raises(params: Params, ctx: Context) -> Done:
        wakes(params, ctx)
        raise TimeoutError("no answer")

    for action in (wakes, wakes_and_raises):
        action.compensation(_undo_in(world, "keyed"))


def _prepare_sales(ledger: Ledger) -> None:
    with ledger.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE sales (run TEXT, step TEXT, what TEXT)")


def _declare_sale(registry: Registry) -> None:
    def sell(ctx: Context, what: str, result: Any) -> None:
        with ctx.ledger().begin() as connection:
            ctx.effect(connection, result)
            values = (ctx.run_id, ctx.step_id, what)
            connection.exec_driver_sql("INSERT INTO sales VALUES (?, ?, ?)", values)

    @registry.action("transactional", effect="transactional", attempts=4)
    def sale(params: Params, ctx: Context) -> Done:
        done = Done(x=params.x)
        sell(ctx, "do", done)
        return done

    @sale.compensation
    def take_back(params: Params, done: Done | None, ctx: Context) -> None:
        sell(ctx, "undo", None)


def sales(ledger: Ledger, ref: RunRef, step_id: str, what: str) -> int:
    """How often a step's row stands in the users' own table."""
    with ledger.begin() as connection:
        rows = connection.exec_driver_sql(
            "SELECT count(*) FROM sales WHERE run = ? AND step = ? AND what = ?", (ref.run_id, step_id, what)
        )
        return int(rows.scalar_one())
