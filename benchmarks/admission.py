"""What the door costs, beside pydantic alone.

    python -m benchmarks.admission [--quick] [--json]

Bare is what a project without a door would do: one strict pydantic model of the whole plan, a union over the built-in
actions, `model_validate_json`. The door does that too, and then all else it promises. Both are run in turn, round by
round, so that a busy machine slows both. The time is the thread's own; the ratio is that of the best times, its
spread that of the rounds.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.admission import Admission, Catalogue, validate_handoff
from orchestrator.settings import Settings
from schemas.policy import Policy
from workers.actions.commands import RunCommand
from workers.actions.files import CreateFile
from workers.actions.records import MutateRecord
from workers.registry import catalogue, load_actions

STEPS: Final = 100
ALLOWED: Final = 3.0
ENTITY: Final = "9c1f0a52-7d3e-4b88-a6f4-2e5d7c8b9a01"
PLAN_ID: Final = "3f2b6c1e-9a4d-4c57-8e21-0b7d5a6f9c10"
HASH: Final = "e" * 64


class Step(BaseModel):
    """What every step has."""

    model_config = ConfigDict(strict=True, extra="forbid")

    id: str | None = None
    needs: list[str] | None = None


class FileStep(Step):
    """A step that writes a file."""

    action: Literal["create_file"]
    params: CreateFile


class CommandStep(Step):
    """A step that runs a command."""

    action: Literal["run_command"]
    params: RunCommand


class RecordStep(Step):
    """A step that changes a record."""

    action: Literal["mutate_record"]
    params: MutateRecord


class BarePlan(BaseModel):
    """The whole plan, as one would write it without a door."""

    model_config = ConfigDict(strict=True, extra="forbid")

    plan_id: UUID
    context_hash: str
    steps: list[Annotated[FileStep | CommandStep | RecordStep, Field(discriminator="action")]]


KINDS: Final[tuple[Callable[[int], dict[str, Any]], ...]] = (
    lambda n: {"action": "create_file", "params": {"path": f"reports/{n}.txt", "content": "line of text\n" * 10}},
    lambda n: {"action": "run_command", "params": {"command": f"wc -l reports/{n - 1}.txt", "timeout_ms": 2000}},
    lambda n: {"action": "mutate_record", "params": {"entity_id": ENTITY, "changes": {"n": n, "tags": ["a", "b"]}}},
)


def plan_text(steps: int) -> str:
    """A chain of the three built-in actions in turn, with ids and needs written out."""
    made = [
        KINDS[number % 3](number) | {"id": f"step-{number}", "needs": [f"step-{number - 1}"] if number else []}
        for number in range(steps)
    ]
    return json.dumps({"plan_id": PLAN_ID, "context_hash": HASH, "steps": made})


@dataclass(frozen=True)
class Measured:
    """The best times of all rounds, and the ratio of door to bare in each round.

    hashed_ms: the verdict, and the canonical plan written out and hashed, as it is before it is stored.
    """

    bare_ms: float
    door_ms: float
    hashed_ms: float
    ratios: tuple[float, ...]

    def report(self) -> dict[str, Any]:
        """What --json prints. spread: what four rounds of five lie between."""
        tenths = statistics.quantiles(self.ratios, n=10)
        return {
            "steps": STEPS,
            "bare_ms": round(self.bare_ms, 3),
            "door_ms": round(self.door_ms, 3),
            "hashed_ms": round(self.hashed_ms, 3),
            "ratio": round(self.door_ms / self.bare_ms, 2),
            "spread": [round(tenths[0], 2), round(tenths[-1], 2)],
            "allowed": ALLOWED,
            "rounds": len(self.ratios),
        }


def measure(rounds: int, calls: int) -> Measured:
    """Door and bare model in turn."""
    text, known, policy = plan_text(STEPS), _catalogue(), Policy()

    def door() -> Admission:
        return validate_handoff(text, catalogue=known, policy=policy, context_hash=HASH)

    times = [
        (
            _best_ms(lambda: BarePlan.model_validate_json(text), calls),
            _best_ms(door, calls),
            _best_ms(lambda: door().plan_hash, calls),
        )
        for _ in range(rounds)
    ]
    bare, judged, hashed = zip(*times, strict=True)
    return Measured(min(bare), min(judged), min(hashed), tuple(mine / plain for plain, mine, _ in times))


def _catalogue() -> Catalogue:
    load_actions(Settings())
    return catalogue()


def _best_ms(call: Callable[[], Any], calls: int) -> float:
    best = float("inf")
    for _ in range(calls):
        started = time.thread_time()
        call()
        best = min(best, time.thread_time() - started)
    return best * 1000


def main() -> int:
    """Print the figures; 1 if the door costs more than it may."""
    parser = argparse.ArgumentParser(description="What validate_handoff costs beside model_validate_json.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    options = parser.parse_args()
    found = measure(rounds=10 if options.quick else 60, calls=20).report()
    if options.json:
        print(json.dumps(found))
    else:
        low, high = found["spread"]
        print(
            f"a plan of {STEPS} steps: bare {found['bare_ms']} ms, door {found['door_ms']} ms, "
            f"written out and hashed {found['hashed_ms']} ms"
        )
        print(f"ratio {found['ratio']}, four rounds of five within {low} and {high}; allowed: {ALLOWED:g}")
    return int(found["ratio"] > ALLOWED)


if __name__ == "__main__":
    raise SystemExit(main())
