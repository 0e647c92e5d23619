"""What is explored: runs of one or two steps, of each effect class, with what may go wrong and be decided."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import event

from tests.explorer.doors import doors
from tests.explorer.moves import Bounds, Explorer, State
from tests.explorer.operations import Gate
from tests.explorer.outside import Seen, actions
from tests.explorer.rules import Judge
from tests.explorer.search import Found, Search
from tests.explorer.stored import WAIT, Stored
from tests.explorer.written import Written
from tests.support.servers import Server
from tests.support.workbench import Run, Workbench, narrowed, workbench

ONCE_EACH = Bounds()
MOST = 400_000  # states


@dataclass(frozen=True)
class Scenario:
    """actions: of the steps, each of which needs the one before, unless they are abreast."""

    actions: tuple[str, ...]
    bounds: Bounds = ONCE_EACH
    attempts: int = 2
    on_failure: str = "compensate"
    on_doubt: str = "end"
    probed: bool = False
    abreast: bool = False
    deadline: bool = False

    def __str__(self) -> str:
        said = [*self.actions, f"attempts={self.attempts}"]
        said += [f"{name}={value}" for name, value in self.bounds._asdict().items() if value]
        said += [name for name in ("probed", "abreast", "deadline") if getattr(self, name)]
        said += [
            f"{name}={value}"
            for name in ("on_failure", "on_doubt")
            if (value := getattr(self, name)) in ("stop", "wait")
        ]
        return " ".join(said)


@contextmanager
def begun(scenario: Scenario, server: Server, namespace: str, folder: Path) -> Iterator[tuple[Explorer, State]]:
    """A run whose plan was just admitted, and its explorer."""
    gate = Gate()
    bench = workbench(server.url, namespace, folder)
    bench.ledger._clock = bench.ledger.effects._clock = bench.ledger.late._clock = lambda: bench.clock.now
    event.listen(
        bench.ledger._database._engine(), "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF")
    )
    bench.ledger.close()
    bench.registry = actions(gate, attempts=scenario.attempts, probed=scenario.probed)
    run = _planned(bench, scenario)
    stored = Stored(server.url, bench.store.scripts, run.ref)
    written = Written(bench.ledger, folder / "ledger.db")
    with doors(bench.store, bench.settings, bench.registry, run.ref, gate) as installation:
        explorer = Explorer(installation, stored, written, deadline=scenario.deadline)
        sent = [message for wave in bench.outbox.waves for message in wave]
        world = tuple((f"s{index}", Seen()) for index in range(len(scenario.actions)))
        messages = tuple(sorted(explorer.message(message) for message in sent))
        yield explorer, State(stored.begin(), written.begin(), world, messages, (), scenario.bounds)
    written.close()
    bench.store.close()
    bench.ledger.close()


def _planned(bench: Workbench, scenario: Scenario) -> Run:
    steps = list[dict[str, Any]]()
    for index, action in enumerate(scenario.actions):
        needs = [f"s{index - 1}"] if index and not scenario.abreast else []
        steps.append({"action": action, "params": {"x": 1}, "needs": needs})
    policy = narrowed(on_failure=scenario.on_failure, on_doubt=scenario.on_doubt, wait_s=WAIT / 1000)
    return bench.planned(*steps, policy=policy)


def explored(
    scenario: Scenario, server: Server, namespace: str, folder: Path, *, modelled: bool = True, finest: bool = False
) -> Found:
    """All that can come of a scenario. modelled: each call is held against the model; finest: reads stand alone."""
    with begun(scenario, server, namespace, folder) as (explorer, first):
        explorer.modelled, explorer.finest = modelled, finest
        judge = Judge(scenario.on_failure == "stop", scenario.bounds.faults)
        return Search(explorer, judge).run(first, MOST)
