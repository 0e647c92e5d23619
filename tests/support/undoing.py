"""An office whose actions are done and undone one delivery after the other, and which notes what it was to undo."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from orchestrator.store.replies import Ended, UndoGranted
from tests.support.workbench import Run, Workbench
from workers.context import Context, PermanentError

Undo = Callable[["Params", Any, Context], Any]


class Params(BaseModel):
    x: int = 1


class Doubled(BaseModel):
    value: int


@dataclass
class Told:
    """What a compensation was called with."""

    step_id: str
    x: int
    done: Any
    ctx: Context


@dataclass
class Office:
    """A workbench whose actions double, fail, or do what a test says, and note how they are undone."""

    bench: Workbench
    undone: list[Told] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)

    def declare(self, name: str, effect: str, *, undo: Undo | None = None, **limits: Any) -> None:
        """An action that doubles x. undo: what its compensation does besides noting it."""

        def double(params: Params, ctx: Context) -> Doubled:
            result = Doubled(value=2 * params.x)
            if effect == "transactional":
                with ctx.ledger().begin() as connection:
                    ctx.effect(connection, result)
            return result

        def take_back(params: Params, done: Doubled | None, ctx: Context) -> Any:
            if effect == "transactional":
                with ctx.ledger().begin() as connection:
                    ctx.effect(connection, None)
                    return self.note(params, done, ctx, undo)
            return self.note(params, done, ctx, undo)

        declared = self.bench.registry.action(name, effect=effect, **limits)(double)
        declared.compensation(take_back)

    def note(self, params: Params, done: Doubled | None, ctx: Context, undo: Undo | None) -> Any:
        if self.faults:
            raise self.faults.pop(0)
        answer = undo(params, done, ctx) if undo else None
        self.undone.append(Told(ctx.step_id, params.x, done, ctx))
        return answer

    def fail(self, name: str = "fail") -> None:
        """An action that fails for good, and without an effect."""

        def failing(params: Params, ctx: Context) -> None:
            raise PermanentError("no")

        self.bench.registry.action(name, effect="pure")(failing)

    def failed_after(self, *actions: str, **given: Any) -> Run:
        """A run in which these steps, one after the other, were done, and the next has failed."""
        steps = [{"action": action, "params": {"x": i}} for i, action in enumerate((*actions, "fail"))]
        run = self.bench.planned(*steps, **given)
        for i in range(len(steps)):
            run.deliver(f"s{i}")
        assert run.state.status == "failing"
        return run

    @property
    def order(self) -> list[str]:
        return [told.step_id for told in self.undone]


def opened(bench: Workbench) -> Office:
    """One with an action `fail`."""
    office = Office(bench)
    office.fail()
    return office


def row_of(run: Run, step_id: str, kind: Any = "undo") -> str:
    """What a fence beyond all others finds in the row."""
    token = run.step(step_id).token
    answer = run.bench.ledger.effects.look(run.ref.run_id, step_id, kind, 10**6, token)
    return type(answer).__name__


def claim_and_die(run: Run, step_id: str = "s0", worker: str = "host:9:9") -> UndoGranted:
    """Claim the undo as a child that then dies, and is seen dead by its parent."""
    guard = run.bench.store.guard
    granted = guard.claim_undo(run.ref, step_id, generation=1, claim_id=f"lost-{worker}", worker=worker)
    assert isinstance(granted, UndoGranted)
    assert isinstance(guard.end_claim(run.ref, step_id, worker), Ended)
    return granted


def come_late(office: Office, run: Run) -> None:
    """A landing of a fence that was closed."""
    effects, token = office.bench.ledger.effects, run.step("s0").token
    effects.close(run.ref.run_id, "s0", "do", 500)
    effects.land(run.ref.run_id, "s0", "do", 400, token, "null")


def write(step_id: str, path: str, content: str = "x") -> dict[str, Any]:
    return {"id": step_id, "action": "create_file", "params": {"path": path, "content": content}}
