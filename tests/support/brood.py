"""An action that starts processes of every kind, loaded through MANDOR_ACTIONS; its next attempt looks who is left."""

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.support.business import Value, log_effect
from workers import Context, action

MARK = "BROOD"
# a child, a grandchild below it, a leader of its own session, and a daemon with a child, whose starter is gone
PLAIN = (["sleep", "600"], ["sh", "-c", "sleep 600 & wait"])
DAEMON = ["sh", "-c", "trap '' HUP INT TERM; setsid sh -c 'sleep 600 & wait' & exit 0"]
COUNT = 6 + 1  # and a copy of the process itself


@action("test.brood", effect="keyed")
def brood(params: Value, ctx: Context) -> Value:
    """The first attempt starts them all, and never ends; each says which of an earlier one are alive."""
    mark = f"{ctx.run_id}.{ctx.step_id}"
    log_effect(ctx, "began", " ".join(alive(mark)))
    if ctx.attempt == 1:
        start(mark)
        while len(alive(mark)) < COUNT:
            time.sleep(0.1)
        log_effect(ctx, "hatched", params.value)
        time.sleep(600)
    return params


def start(mark: str) -> None:
    env = {**os.environ, MARK: mark}
    for argv in PLAIN:
        subprocess.Popen(argv, env=env)
    subprocess.Popen(PLAIN[0], env=env, start_new_session=True)
    subprocess.run(DAEMON, env=env, check=True)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        while True:
            signal.pause()
    copies(mark).write_text(str(pid))


def alive(mark: str) -> list[str]:
    """Those that bear the mark, and the copy, which cannot bear one."""
    pids = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and bears(entry, mark)]
    copy = copies(mark).read_text() if copies(mark).exists() else ""
    return [*pids, copy] if copy and runs(Path("/proc", copy)) else pids


def copies(mark: str) -> Path:
    return Path(os.environ["EFFECT_LOG"]).with_name(f"copy.{mark}")


def bears(entry: Path, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def runs(entry: Path) -> bool:
    try:
        return (entry / "stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False
