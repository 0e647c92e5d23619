"""Whole workers of one user on one rung, amidst a bait, and what cases of the corpus do with them.

A case is a function that is given a scene: it submits plans, waits for their runs and looks at what became of them. All
cases are played at once. `harmless` holds for each of them, whatever else it is about.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from orchestrator.errors import SubmissionRefused
from orchestrator.policies import FROM_BROKER
from schemas.dead_letter import DeadLetter
from schemas.ids import run_id_for
from schemas.policy import PROTECTED_NAMES, Rung
from schemas.run import RunView, StepView
from tests.support import hostile
from tests.support.bait import MARK, Bait, spread
from tests.support.commanding import LESS, Commander, command_worker
from tests.support.environment import ROOT
from tests.support.fence import STRANGER
from tests.support.sandboxes import skip_without
from tests.support.servers import Server, running_server
from tests.support.system import System, plan_text, running_system, step
from workers.workspace import Workspaces

CHILDREN: Final = 4
# names are protected where a run asks for it, so that the others' files are written
SETTINGS: Final[dict[str, Any]] = {"lease_s": 15, "protected_names": "", "sandbox_uid": STRANGER}
PROTECTED: Final = {"protected_names": sorted(PROTECTED_NAMES)}
MISLED: Final = "tests.support.misled"
STOP: Final = {"on_failure": "stop"}
LONG_S: Final = 100.0  # for a run among all the others, on a busy machine
OFTEN_S: Final = 0.1  # a dozen who wait must leave time to those they wait for
COMMAND: Final = "run_command"
RUNG_TOLD: Final = r"; on the rung (\w+)"


@dataclass
class Fleet:
    """decoy: a server that holds a task for nobody. runs: every run that was asked for."""

    system: System
    rung: Rung
    uid: int | None
    bait: Bait
    decoy: Server
    worker: Commander = field(init=False)
    runs: set[str] = field(default_factory=set)
    _door: threading.Lock = field(default_factory=threading.Lock)

    @property
    def password(self) -> str:
        return urlsplit(self.system.installed.settings.redis_url).password or ""

    def start(self, *less: str) -> None:
        """A worker as badly placed as may be. less: what it has to do without, beyond what makes its rung."""
        within = (MISLED, str(self.bait.folder), *(less or LESS[self.rung]))
        self.worker = command_worker(self.system, self.uid, *within, concurrency=CHILDREN)

    def children(self) -> list[int]:
        """Those of the worker that do steps."""
        first = self.worker.pid
        return [int(word) for word in Path(f"/proc/{first}/task/{first}/children").read_text().split()]

    def send(self, plan: str, **fields: Any) -> str:
        """One at a time: the result backend is not for many threads."""
        with self._door:
            run_id = self.system.send({"plan": plan, "context": {}, **fields})
            self.runs.add(run_id)
            return run_id

    def tree(self, run_id: str) -> Path:
        """Where a run's files are."""
        return Workspaces(self.worker.home).path(run_id)


@contextmanager
def fleet(kind: str, user: str, rung: Rung) -> Iterator[Fleet]:
    """user: root, or a stranger to this machine. Everything runs but the workers for steps."""
    skip_without(rung)
    with TemporaryDirectory(prefix="mandor-fenced-") as name, spread(STRANGER) as bait:
        folder = Path(name)
        folder.chmod(0o755)
        (bait.folder / "home").mkdir()
        (bait.folder / "home").chmod(0o777)
        with (
            running_server(folder / "server", kind) as server,
            running_server(folder / "decoy", kind) as decoy,
            running_system(server.url, folder, **SETTINGS) as system,
        ):
            system.start_control()
            with system.installed.in_force():
                yield Fleet(system, rung, None if user == "root" else STRANGER, bait, decoy)


@dataclass
class Scene:
    """One case with a fleet. tells: whether its results may hold the mark, since its plan does."""

    fleet: Fleet
    name: str
    tells: bool = False
    views: list[RunView] = field(default_factory=list)

    @property
    def canary(self) -> Path:
        return self.fleet.bait.folder / "canaries" / self.name

    def tokens(self, **others: Any) -> hostile.Tokens:
        worker = self.fleet.worker
        ours = {"CANARY": self.canary, "WORKER_PID": worker.pid, **others}
        return {**self.fleet.bait.tokens(worker.home), **ours}

    def steps(self, **tokens: Any) -> list[dict[str, Any]]:
        """The case's own, in their order."""
        return hostile.steps(self.name, self.tokens(**tokens))

    def begin(
        self, *steps: dict[str, Any], policy: dict[str, Any] | None = None, plan_id: str | None = None, **fields: Any
    ) -> str:
        plan = plan_text(*steps, plan_id=plan_id)
        return self.fleet.send(plan, policy={**STOP, **(policy or {})}, **fields)

    def end(self, run_id: str) -> RunView:
        view = self.fleet.system.wait(run_id, timeout_s=LONG_S, every_s=OFTEN_S)
        self.views.append(view)
        return view

    def run(self, *steps: dict[str, Any], policy: dict[str, Any] | None = None, **fields: Any) -> RunView:
        return self.end(self.begin(*steps, policy=policy, **fields))

    def whole(self, policy: dict[str, Any] | None = None, **tokens: Any) -> RunView:
        """The case's plan as it is."""
        return self.run(*self.steps(**tokens), policy=policy)

    def each(self, policy: dict[str, Any] | None = None, **tokens: Any) -> list[RunView]:
        """A run for each of its steps."""
        begun = [self.begin({**one, "needs": []}, policy=policy) for one in self.steps(**tokens)]
        return [self.end(run_id) for run_id in begun]

    def said(self, line: str, policy: dict[str, Any] | None = None, **params: Any) -> str:
        """What a command of ours says, in a run of its own."""
        return said(self.run(command(line, **params), policy=policy).steps[0])

    def tree(self, view: RunView) -> Path:
        return self.fleet.tree(view.run_id)

    def letters(self, view: RunView) -> list[DeadLetter]:
        return self.fleet.system.installed.ledger.letters(100, run_id=view.run_id)

    def faults(self, *steps: dict[str, Any], policy: dict[str, Any] | None = None) -> list[str]:
        """The kinds of what the door finds wrong with a plan."""
        return [error["kind"] for error in self.refusal(self.run(*steps, policy=policy))]

    def turned_away(self, *steps: dict[str, Any]) -> str:
        """What is said to who submits what is too large to be read; no run comes of it."""
        with pytest.raises(SubmissionRefused) as refused:
            self.begin(*steps)
        return str(refused.value)

    def refusal(self, view: RunView) -> list[dict[str, Any]]:
        """What the door found wrong with a plan that no worker was given."""
        assert (view.status, view.steps) == ("dead_lettered", ()), view
        (letter,) = self.letters(view)
        errors: list[dict[str, Any]] = letter.content["attempts"][0]["errors"]
        assert "Traceback" not in json.dumps(letter.content)
        return errors


@contextmanager
def harmless(scene: Scene) -> Iterator[None]:
    """Its canary stays as it is; its commands ran on the fleet's rung; what is kept of its runs tells no secret, no
    folder of ours, nor where we failed.
    """
    before = scene.fleet.bait.files(f"canaries/{scene.name}")
    yield
    assert scene.fleet.bait.files(f"canaries/{scene.name}") == before
    assert {rung for view in scene.views for rung in rungs(view)} <= {scene.fleet.rung}, "a child fell to a lower one"
    told = "".join(view.model_dump_json() for view in scene.views)
    for unwanted in (scene.fleet.password, str(scene.fleet.worker.home), str(ROOT), *(() if scene.tells else (MARK,))):
        assert unwanted not in told


Play = Callable[[Scene], None]
CASES: dict[str, Play] = {}


def plays(*names: str, **fixed: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The function plays these cases of the corpus."""

    def keep(play: Callable[..., None]) -> Callable[..., None]:
        for name in names:
            assert name not in CASES, f"{name} is played already"
            CASES[name] = partial(play, **fixed) if fixed else play
        return play

    return keep


# ---- plans, and what became of steps


def command(line: str, name: str | None = None, needs: list[str] | None = None, **params: Any) -> dict[str, Any]:
    return step(COMMAND, name, needs, command=line, **params)


def how(view: RunView) -> list[str]:
    """Of each step the kind of its error, or its status where it has none."""
    return [one.error.kind if one.error else str(one.status) for one in view.steps]


def rungs(view: RunView) -> set[str]:
    """On which its commands ran, as their results and their errors say."""
    commands = [one for one in view.steps if one.action == COMMAND]
    errors = " ".join(one.error.message for one in commands if one.error)
    return {one.result["rung"] for one in commands if one.result is not None} | set(re.findall(RUNG_TOLD, errors))


def said(one: StepView) -> str:
    """Everything that is kept of what a command wrote; of one that failed, what its error says of that."""
    if one.result is None:
        return one.error.message if one.error else ""
    return "".join(one.result[f"{stream}_{part}"] for stream in ("stdout", "stderr") for part in ("head", "tail"))


def alive(*argv: str) -> list[int]:
    """Processes of the fence with this command line."""
    wanted = "\0".join(argv).encode() + b"\0"
    return [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit() and _line_of(one) == wanted]


def _line_of(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def fresh_id() -> str:
    return str(uuid4())


def request() -> tuple[str, str]:
    """A request_id, and the run_id that its run will have."""
    name = fresh_id()
    return name, run_id_for(FROM_BROKER, None, name)
