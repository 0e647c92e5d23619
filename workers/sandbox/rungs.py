"""How a sandbox of each rung is started: a command line, and an order that its first process reads.

bubblewrap    bwrap makes the namespaces and the mounts; our process 1 puts Landlock, seccomp and limits inside
namespaces    our own process makes namespaces and mounts; the rest is the same
rlimits       limits alone, under the same user: for machines with a single tenant, whose operator says so
"""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from schemas.policy import Rung
from workers.sandbox.host import INSIDE, Host, tasks_of
from workers.sandbox.inside.namespaces import DEVICE_LINKS, DEVICE_ROOM, DEVICES
from workers.sandbox.jobs import ROOM_BYTES, ROOM_FILES, Job

WORKSPACE: Final = "/workspace"
_INSIDE: Final = "/run/mandor/inside"
_ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",  # noqa: S108  (the sandbox's own)
}
LATE_GRACES: Final = 4  # after its time limit: then a command is ended from within, should its worker be frozen
_NEW: Final = ("user", "pid", "net", "ipc", "uts", "cgroup-try")
_ROOMS: Final = ("/dev/shm", "/tmp")  # noqa: S108  (the sandbox's own)


@dataclass(frozen=True, slots=True)
class Start:
    """argv: to which the numbers of three descriptors are added; order: what is written to the first."""

    argv: tuple[str, ...]
    order: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the folders of a sandbox are found by whoever mounts them; staged where a root worker hands over."""

    workspace: str
    inside: str
    prefix: str


def start(rung: Rung, host: Host, job: Job) -> Start:
    """How this job is started on this rung."""
    return _STARTS[rung](host, job)


def _order(job: Job, folder: str, *, fenced: bool) -> dict[str, Any]:
    return {
        "command": job.command,
        "environment": {**_ENVIRONMENT, "HOME": folder},
        "folder": folder,
        "limits": job.limits.inside(),
        "memory": {"most": job.limits.memory_bytes, "rooms": _ROOMS, "socket_bytes": _socket_bytes()},
        "late_s": job.limits.timeout_s + LATE_GRACES * job.limits.grace_s,
        "writable": [folder, *_ROOMS],
        "fenced": fenced,
    }


@cache
def _socket_bytes() -> int:
    """Of what may wait in a Unix socket for whoever reads; the last message may go half as far again beyond it."""
    with socket.socket(socket.AF_UNIX) as one:
        return one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) * 3 // 2


def _python(host: Host, folder: str, module: str) -> tuple[str, ...]:
    """Isolated: no site packages, nothing of the environment, nothing from the folder it starts in."""
    begin = f"import sys; sys.path.append({folder!r}); from inside.{module} import main; main()"
    return (host.python, "-IS", "-B", "-c", begin)


def _folders(host: Host, job: Job) -> tuple[str, ...]:
    """What a root worker must stage, in this order."""
    return str(job.workspace), str(INSIDE), host.prefix


def _sources(host: Host, job: Job) -> Sources:
    if host.uid is None:
        return Sources(*_folders(host, job))
    return Sources(*(f"{host.stage}/{number}" for number in range(3)))


# ---- bubblewrap


def _with_bubblewrap(host: Host, job: Job) -> Start:
    assert host.bubblewrap is not None
    argv = (host.bubblewrap, *_bubblewrap(host, _sources(host, job)), "--", *_python(host, _parent(_INSIDE), "init"))
    return Start((*_handed_over(host, job), *argv), _order(job, WORKSPACE, fenced=True))


def _handed_over(host: Host, job: Job) -> tuple[str, ...]:
    """What a root worker starts first; nothing for any other."""
    if host.uid is None:
        return ()
    folders = _folders(host, job)
    about = (str(host.uid), str(host.gid), str(host.stage), str(len(folders)), *folders)
    return (*_python(host, _parent(str(INSIDE)), "handover"), *about)


def _bubblewrap(host: Host, sources: Sources) -> list[str]:
    argv = [f"--unshare-{name}" for name in _NEW]
    argv += ["--as-pid-1", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox"]
    for source, target in (*host.shown(), *_programs(host, sources)):
        argv += ["--ro-bind", source, target]
    for path, target in host.links():
        argv += ["--symlink", target, path]
    argv += ["--proc", "/proc", *_bubblewrap_devices()]
    for room in _ROOMS:
        argv += ["--size", str(ROOM_BYTES), "--tmpfs", room]
    argv += ["--bind", sources.workspace, WORKSPACE, "--remount-ro", "/dev", "--remount-ro", "/"]
    return [*argv, "--chdir", WORKSPACE]


def _bubblewrap_devices() -> Iterator[str]:
    """Those that have no state: its own --dev has terminals besides."""
    yield from ("--size", str(DEVICE_ROOM), "--tmpfs", "/dev")
    for name in DEVICES:
        yield from ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    for name, link in DEVICE_LINKS.items():
        yield from ("--symlink", link, f"/dev/{name}")


def _programs(host: Host, sources: Sources) -> list[tuple[str, str]]:
    """Our process 1, and the Python it runs on."""
    python = [] if host.shows_python() else [(sources.prefix, host.prefix)]
    return [(sources.inside, _INSIDE), *python]


# ---- namespaces


def _with_namespaces(host: Host, job: Job) -> Start:
    sources = _sources(host, job)
    order = {
        **_order(job, WORKSPACE, fenced=True),
        "uid": host.uid,
        "gid": host.gid,
        "staged": host.stage,
        "sources": _folders(host, job),
        "shown": [*host.shown(), *_programs(host, sources)],
        "links": [*host.links()],
        "workspace": sources.workspace,
        "room_bytes": ROOM_BYTES,
        "room_files": ROOM_FILES,
    }
    return Start(_python(host, _parent(str(INSIDE)), "namespaces"), order)


# ---- limits alone


def _with_limits(host: Host, job: Job) -> Start:
    """Here the kernel holds all processes of the user against the limit, whoever has started them: so those that are
    there already are let alone.
    """
    order = {**_order(job, str(job.workspace), fenced=False), "uid": host.uid, "gid": host.gid}
    order["limits"]["processes"] += tasks_of(os.geteuid() if host.uid is None else host.uid)
    return Start(_python(host, _parent(str(INSIDE)), "alone"), order)


def _parent(folder: str) -> str:
    return str(Path(folder).parent)


_STARTS: Final = {
    Rung.BUBBLEWRAP: _with_bubblewrap,
    Rung.NAMESPACES: _with_namespaces,
    Rung.RLIMITS: _with_limits,
}
