"""What a storm does to processes, server and messages. Each answers whether there was anything to do it to."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from redis import Redis

from orchestrator import names as queues
from orchestrator.errors import MandorError
from orchestrator.store.replies import Dispatch
from workers.faults import broker, trouble
from workers.faults.ground import group_of
from workers.faults.hands import STEP_WORKERS

if TYPE_CHECKING:
    from tests.support.storm.weather import Weather

Trouble = Callable[["Weather", Random], bool]
AWAY_S: Final = (0.2, 2.0)
DOUBLED: Final = 10  # runs of which every message is sent once more
LIMIT_MS: Final = 60_000
LOCKED_S: Final = 1.0  # nobody who is awake keeps the ledger for so long
SLEEPS: Final = (2.2, 3.0)  # times as long as a lease and two sweeps


# ---- processes


def kill_child(weather: "Weather", draw: Random) -> bool:
    """A child of a step worker, if there is any in the middle of an action."""
    awake = weather.awake(STEP_WORKERS)
    return _kill_one(weather, draw, sorted(pid for pid in weather.at_work() if weather.worker_of(pid) in awake))


def kill_child_of(name: str, weather: "Weather", draw: Random) -> bool:
    """Any child of this worker."""
    killed = _kill_one(weather, draw, [pid for pid in members(weather, name) if pid != group(weather, name)])
    if killed and name == "supervise":
        weather.flicker()
    return killed


def _kill_one(weather: "Weather", draw: Random, pids: list[int]) -> bool:
    if not pids:
        return False
    pid = draw.choice(pids)
    weather.kill([pid], "child killed")
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_whole(names: Iterable[str], weather: "Weather", draw: Random) -> bool:
    """One of these with all its children. It is started again."""
    awake = weather.awake(names)
    if not awake:
        return False
    name = draw.choice(awake)
    if name in ("supervise", "beat"):
        weather.is_down(name)
    weather.kill(members(weather, name), f"{name} killed")
    weather.floor.hands.kill(name)
    return True


def freeze(names: Iterable[str], weather: "Weather", draw: Random) -> bool:
    """One of these, for longer than it may take until others have what it had. Not in a transaction: SQLite has one
    lock, so with it the ledger would be away for as long, which is another fault.
    """
    awake = weather.awake(names)
    if not awake:
        return False
    name, given = draw.choice(awake), weather.floor.settings
    pids = members(weather, name)
    weather.floor.hands.freeze(name)
    if _is_locked(weather):
        weather.floor.hands.thaw(name)
        return False
    weather.lose(pids, f"{name} frozen")
    weather.asleep[name] = time.monotonic() + draw.uniform(*SLEEPS) * (given.lease_s + 2 * given.sweep_s)
    return True


def _is_locked(weather: "Weather") -> bool:
    """Whether nobody else can write to the ledger."""
    try:
        with closing(sqlite3.connect(weather.ledger_file, timeout=LOCKED_S, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    return False


def members(weather: "Weather", name: str) -> list[int]:
    """The processes of a worker, its main one too."""
    leader, pids = group(weather, name), (entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return sorted(pid for pid in map(int, pids) if group_of(pid) == leader)


def group(weather: "Weather", name: str) -> int:
    """A worker's process group, which is its main process."""
    return weather.floor.hands.group_of(name)


# ---- server


def cut_connections(weather: "Weather", _: Random) -> bool:
    """All of them: store, broker and results are one server."""
    weather.flicker()
    with Redis.from_url(weather.floor.server.url) as client:
        client.client_kill_filter(skipme=True)
    return True


def restart_server(weather: "Weather", draw: Random) -> bool:
    """It writes everything down, goes, and comes back."""
    weather.is_down("server")
    weather.floor.restart_server(draw.uniform(*AWAY_S))
    return True


def kill_server(weather: "Weather", _: Random) -> bool:
    """It comes back with what its file says."""
    weather.is_down("server")
    server = weather.floor.server
    assert server.pid is not None
    weather.floor.hands.forget(server.pid)
    os.kill(server.pid, signal.SIGKILL)
    weather.floor.until(lambda: not server.running(), "the server's end")
    server.start()
    weather.floor.hands.guard(server.pid)
    return True


# ---- messages


def double_messages(weather: "Weather", draw: Random) -> bool:
    """Every message of some runs, whatever becomes of it."""
    live = weather.live()
    chosen = draw.sample(live, min(DOUBLED, len(live)))
    for run_id in chosen:
        weather.scene.nuisance("messages doubled", run_id)
    return trouble.send(weather.floor.app, chain.from_iterable(_copies(weather, run_id) for run_id in chosen)) > 0


def _copies(weather: "Weather", run_id: str) -> Iterator[Dispatch]:
    floor = weather.floor
    try:
        usual = list(trouble.copies(floor.lookup, run_id, floor.steps[0].queue, LIMIT_MS))
    except MandorError:  # the server is away
        return
    for message in usual:
        yield message
        if message.kind == "step":
            yield replace(message, kind="undo")
            yield replace(message, kind="close")
    queue = queues.queue(floor.settings.prefix, "plan")
    yield Dispatch("plan", usual[0].ref, usual[0].generation, queue=queue, limit_ms=LIMIT_MS)


def give_back(weather: "Weather", _: Random) -> bool:
    """Every message in hand goes back to its queue, those of the dead and those of the living."""
    broker.give_back(weather.floor.app)
    return True


TROUBLES: Final[dict[str, Trouble]] = {
    "child killed": kill_child,
    "child of planner killed": partial(kill_child_of, "planner"),
    "child of control killed": partial(kill_child_of, "control"),
    "child of supervise killed": partial(kill_child_of, "supervise"),
    "steps killed": partial(kill_whole, STEP_WORKERS),
    "planner killed": partial(kill_whole, ["planner"]),
    "control killed": partial(kill_whole, ["control"]),
    "supervise killed": partial(kill_whole, ["supervise"]),
    "beat killed": partial(kill_whole, ["beat"]),
    "steps frozen": partial(freeze, STEP_WORKERS),
    "planner frozen": partial(freeze, ["planner"]),
    "connections cut": cut_connections,
    "server restarted": restart_server,
    "server killed": kill_server,
    "messages doubled": double_messages,
    "messages given back": give_back,
}
