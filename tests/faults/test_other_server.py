"""A store that is not the one we knew: a worker stops itself and says why, and stops nobody else."""

import subprocess
import sys
from collections.abc import Callable
from uuid import uuid4

import pytest

from orchestrator import dispatch
from tests.support.environment import clean_environment
from tests.support.processes import APP, READY, WORKER_ENV, WORKER_OPTIONS
from tests.support.system import System, plan_text, step

# whoever starts workers: a shell, a supervisor of processes, a container's first process
STARTER = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: print("the starter is told to stop", flush=True))
print("the worker ended with", subprocess.call(sys.argv[1:]), flush=True)
"""


@pytest.mark.parametrize(("key", "said"), [("server", "store_moved"), ("epoch", "store_amnesia")])
def test_it_stops_the_worker_and_not_its_starter(new_system: Callable[..., System], key: str, said: str) -> None:
    system = new_system()
    store = system.installed.store
    for shard in range(store.shards):
        system.installed.app.backend.client.set(f"{store.keys.prefix(shard)}{key}", "another")

    worker = (sys.executable, "-m", "celery", "-A", APP, "worker", "-Q", system.installed.queue("control"), "-c", "1")
    system.processes.python("starter", "-c", STARTER, *worker, *WORKER_OPTIONS, ready=READY, env=WORKER_ENV)
    plan = plan_text(step("business.book", "a"))
    dispatch.send_submission(system.installed.app, {"plan": plan}, str(uuid4()))

    system.processes.wait_for_line("the worker ended with 0", name="starter")
    lines = system.processes.lines("starter")
    assert any(f'"{said}"' in line and "service.refused" in line for line in lines), system.processes.tail()
    assert not any("the starter is told" in line for line in lines)
    # nothing is lost: the submission waits for a worker that may take it
    assert system.installed.app.backend.client.llen(system.installed.queue("control")) == 1


# a worker that was killed, and its child, which finds itself with the starter for a parent
ORPHAN = """
import ctypes, os, signal, time
from orchestrator import tasks
from orchestrator.errors import StoreMoved
CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(CHILD_SUBREAPER, 1)
signal.signal(signal.SIGTERM, lambda *_: print("the starter is told to stop", flush=True))
if os.fork() == 0:
    tasks._remember_worker()
    worker = os.getpid()
    if os.fork() == 0:
        while os.getppid() == worker:
            time.sleep(0.01)
        tasks.stop_worker(StoreMoved("another server"))
    os._exit(0)
os.wait()
os.wait()
print("both are gone")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="who inherits orphans is said by prctl")
def test_a_child_whose_worker_is_gone_stops_nobody() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ORPHAN], env=clean_environment(), capture_output=True, text=True, check=True, timeout=30
    )
    assert "both are gone" in ended.stdout
    assert "the starter is told" not in ended.stdout
