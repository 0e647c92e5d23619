"""What is explored: runs of one or two steps, of each effect class, with what may go wrong and be decided."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import event

from tests.explorer.doors import doors
from tests.explorer.moves import Bounds, Explorer, State
from tests.explorer.neighbour import MARK, OWN, moved_in
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
    """actions: of the steps, each of which needs the one before, unless they are abreast. controls: how many settle or
    supervise at once; with more than one a message to settle comes twice, too.
    """

    actions: tuple[str, ...]
    bounds: Bounds = ONCE_EACH
    attempts: int = 2
    on_failure: str = "compensate"
    on_doubt: str = "end"
    probed: bool = False
    abreast: bool = False
    deadline: bool = False
    controls: int = 1

    def __str__(self) -> str:
        said = [*self.actions, f"attempts={self.attempts}"]
        said += [f"{name}={value}" for name, value in self.bounds._asdict().items() if value]
        said += [name for name in ("probed", "abreast", "deadline") if getattr(self, name)]
        said += [f"controls={self.controls}"] if self.controls > 1 else []
        said += [
            f"{name}={value}"
            for name in ("on_failure", "on_doubt")
            if (value := getattr(self, name)) in ("stop", "wait")
        ]
        return " ".join(said)


CLASSES = ("pure", "idempotent", "transactional", "keyed", "once")
EFFECTS = CLASSES[1:]
TWICE, RAISING, CANCELLED = Bounds(1, 1), Bounds(1, 0, 1), Bounds(1, 0, 0, 1)
RETRIED, ANSWERED = Bounds(1, 0, 0, 1, 0, 1), Bounds(1, 0, 0, 0, 1)
BEGUN_AGAIN = Bounds(0, 1, 1, undos=1)

IN_PASSING = Scenario(("transactional",), TWICE)  # in every test run, as one more below; the others with --full
EVERYTHING = (
    *(Scenario((effect,), TWICE, 2) for effect in CLASSES),
    *(Scenario((effect,), TWICE, 1) for effect in CLASSES),
    *(Scenario((effect,), RAISING, attempts) for effect in CLASSES for attempts in (1, 2)),
    *(Scenario((effect,), CANCELLED, attempts) for effect in CLASSES for attempts in (1, 2)),
    *(Scenario((effect, "fails"), Bounds(1, 0), 1) for effect in EFFECTS),
    Scenario(("transactional", "fails"), TWICE, 1),
    Scenario(("keyed",), CANCELLED, 1, deadline=True),
    Scenario(("transactional",), Bounds(2, 0), 2),
    Scenario(("keyed",), Bounds(2, 0), 1),
    Scenario(("keyed", "pure", "keyed"), Bounds(0, 0, 0, 1), 1),
    Scenario(("pure", "transactional"), Bounds(1, 0), 1, abreast=True),
    Scenario(("keyed",), RETRIED, 1, on_failure="stop"),
    Scenario(("once",), ANSWERED, 1, on_failure="stop", on_doubt="wait"),
    Scenario(("keyed",), Bounds(1, 0), 1, probed=True),
    Scenario(("once",), Bounds(1, 0), 2, probed=True),
    *(Scenario((effect, "fails"), BEGUN_AGAIN, 1) for effect in EFFECTS),
    Scenario(("transactional", "fails"), Bounds(1, 0, 1, undos=1), 1),
    Scenario(("keyed", "keyed", "fails"), Bounds(0, 0, 1, undos=1), 1),
)
BY_TWO = tuple(  # who settle or supervise at once; and a message to settle comes twice, where any message does
    replace(scenario, controls=2)
    for scenario in (
        *(Scenario((effect,), TWICE, 1) for effect in ("pure", "transactional", "keyed")),
        Scenario(("transactional",), TWICE, 2),
        *(Scenario((effect,), RAISING, 2) for effect in ("pure", "transactional")),
        *(Scenario((effect,), CANCELLED, 1) for effect in ("pure", "transactional")),
        Scenario(("keyed",), Bounds(0, 1, 0, 1), 1, deadline=True),
        Scenario(("transactional", "fails"), TWICE, 1),
        Scenario(("idempotent", "fails"), Bounds(1, 0), 1),
        Scenario(("pure", "transactional"), Bounds(1, 0), 1, abreast=True),
        Scenario(("keyed", "pure", "keyed"), Bounds(0, 0, 0, 1), 1),
        Scenario(("transactional",), RETRIED, 1, on_failure="stop"),
        Scenario(("once",), ANSWERED, 1, on_failure="stop", on_doubt="wait"),
        Scenario(("keyed",), Bounds(1, 0), 1, probed=True),
        Scenario(("keyed", "fails"), BEGUN_AGAIN, 1),
        Scenario(("keyed", "keyed", "fails"), Bounds(0, 0, 1, undos=1), 1),
    )
)
LARGE_BY_TWO = tuple(Scenario((effect,), TWICE, 1, controls=2) for effect in ("idempotent", "once"))
BY_TWO_IN_PASSING = Scenario(("transactional",), TWICE, 1, controls=2)
TOGETHER = (  # a crash or a freeze, a duplicate, and more
    *(Scenario((effect,), Bounds(1, 1, 1), attempts) for effect in CLASSES for attempts in (1, 2)),
    *(Scenario((effect,), Bounds(1, 1, 0, 1), attempts) for effect in CLASSES for attempts in (1, 2)),
    *(Scenario((effect, "fails"), TWICE, attempts) for effect in EFFECTS for attempts in (1, 2)),
)
READ_BY_READ = (Scenario(("keyed",), Bounds(1, 0), 2), Scenario(("transactional",), TWICE, 2))


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
    other = moved_in(bench, server.url, _planned(bench, scenario, "other", MARK).ref, scenario.actions[0])
    run = _planned(bench, scenario, "run", OWN)
    stored = Stored(server.url, bench.store.scripts, run.ref, other.ref)
    written = Written(bench.ledger, folder / "ledger.db", run.ref.run_id)
    with doors(bench.store, bench.settings, bench.registry, run.ref, gate) as installation:
        explorer = Explorer(
            installation, stored, written, other, deadline=scenario.deadline, controls=scenario.controls
        )
        sent = [message for wave in bench.outbox.waves for message in wave if message.ref == run.ref]
        world = tuple((f"s{index}", Seen()) for index in range(len(scenario.actions)))
        messages = tuple(sorted(explorer.message(message) for message in sent))
        begin, book = stored.begin(), written.begin()
        other.remember(stored.others, written.books[book])
        yield explorer, State(begin, book, world, messages, (), scenario.bounds)
    written.close()
    bench.store.close()
    bench.ledger.close()


def _planned(bench: Workbench, scenario: Scenario, name: str, given: int) -> Run:
    """Each step is given what the one before came to."""
    steps = list[dict[str, Any]]()
    for index, action in enumerate(scenario.actions):
        needs = [f"s{index - 1}"] if index and not scenario.abreast else []
        x = {"$result": needs[0], "path": "/x"} if needs else given
        steps.append({"action": action, "params": {"x": x}, "needs": needs})
    policy = narrowed(on_failure=scenario.on_failure, on_doubt=scenario.on_doubt, wait_s=WAIT / 1000)
    return bench.planned(*steps, name=name, policy=policy)


def explored(
    scenario: Scenario, server: Server, namespace: str, folder: Path, *, modelled: bool = True, finest: bool = False
) -> Found:
    """All that can come of a scenario. modelled: each call is held against the model; finest: reads stand alone."""
    with begun(scenario, server, namespace, folder) as (explorer, first):
        explorer.modelled, explorer.finest = modelled, finest
        judge = Judge(scenario.on_failure == "stop", scenario.bounds.faults)
        return Search(explorer, judge).run(first, MOST)
