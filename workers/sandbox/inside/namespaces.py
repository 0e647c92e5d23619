"""A sandbox without bubblewrap: namespaces of our own, and a root folder that holds what a command may see.

/usr, /bin, ...     the host's, read only            /proc        of the new process namespace
/workspace          the run's, writable              /dev         five devices, and memory of its own
/tmp, /dev/shm      memory, of this sandbox alone    the rest     not there
"""

import ctypes
import os
import struct
import sys
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from . import init, kernel
from .handover import BIND, NEW_MOUNTS, PRIVATE, RECURSIVE, become, mount, stage

_NEW_USER, _NEW_PROCESSES, _NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
_NEW_IPC, _NEW_NAMES, _NEW_CGROUPS = 0x08000000, 0x04000000, 0x02000000
_ALL_NEW: Final = NEW_MOUNTS | _NEW_USER | _NEW_PROCESSES | _NEW_NETWORK | _NEW_IPC | _NEW_NAMES | _NEW_CGROUPS
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC = 1, 2, 4, 8
_REMOUNT: Final = 32
_DETACH: Final = 2
_MOUNT_SETATTR: Final = 442
_WHOLE_TREE: Final = 0x8000
_AT_CWD: Final = -100
_KILL: Final = 9
_CAPABILITIES_3: Final = 0x20080522
DEVICES: Final = ("null", "zero", "full", "random", "urandom")
DEVICE_ROOM: Final = 65_536
DEVICE_LINKS: Final = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_BEFORE: Final = "/before"  # where the host's root hangs while ours is made


def main() -> NoReturn:
    """told, tell, obey: numbers of three descriptors, on the command line. The order says what to mount."""
    told, tell, obey = map(int, sys.argv[1:4])
    order = init.read_order(told)
    doing = "handover"
    try:
        _hand_over(order)
        doing = "namespaces"
        _enter()
        child = os.fork()
        if child == 0:
            doing = "mounts"
            _make_root(order)
            doing = "capabilities"
            _drop_capabilities()
    except OSError as fault:
        os.write(tell, f"failed {doing} {fault.errno}\n".encode())
        os._exit(1)
    if child == 0:
        init.run(order, tell, obey)
    _see_out(child, tell, obey)


def _see_out(child: int, tell: int, obey: int) -> NoReturn:
    """Nothing but waiting: process 1 of the sandbox is gone when all in it are."""
    os.close(tell)
    os.close(obey)
    os.waitpid(child, 0)
    os._exit(0)


def _hand_over(order: Mapping[str, Any]) -> None:
    if os.geteuid() == 0:
        stage(order["staged"], order["sources"])
        become(order["uid"], order["gid"])
    kernel.prctl(kernel.SET_PARENT_DEATH_SIGNAL, _KILL)


def _enter() -> None:
    """New namespaces of every kind, in which this user is the only one there is."""
    uid, gid = os.geteuid(), os.getegid()
    kernel.call("unshare", _ALL_NEW)
    for name, said in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as told:
            told.write(said)


# ---- the root folder


def _make_root(order: Mapping[str, Any]) -> None:
    kernel.prctl(kernel.SET_PARENT_DEATH_SIGNAL, _KILL)
    kernel.call("sethostname", b"sandbox", 7)
    _step_aside(order["room_bytes"])
    for source, target in order["shown"]:
        _show(source, target)
    for target, link in order["links"]:
        os.symlink(link, target)
    _make("/proc")
    mount("proc", "/proc", _NO_SUID | _NO_DEVICES | _NO_EXEC, kind="proc")
    _make_devices()
    for target in ("/dev/shm", "/tmp"):
        _room(target, order["room_bytes"], order["room_files"])
    _bind(order["workspace"], "/workspace", _NO_SUID | _NO_DEVICES)
    kernel.call("umount2", _BEFORE.encode(), _DETACH)
    os.rmdir(_BEFORE)
    for made in ("/", "/dev"):
        mount(None, made, BIND | _REMOUNT | _READ_ONLY | _NO_SUID | _NO_DEVICES)


def _step_aside(room_bytes: int) -> None:
    """An empty folder in memory becomes the root; the old one hangs below it."""
    mount(None, "/", RECURSIVE | PRIVATE)
    mount("tmpfs", "/tmp", _NO_SUID | _NO_DEVICES, kind="tmpfs", options=f"mode=755,size={room_bytes}")
    os.mkdir(f"/tmp{_BEFORE}")
    kernel.call("pivot_root", b"/tmp", f"/tmp{_BEFORE}".encode())
    os.chdir("/")


def _show(source: str, target: str) -> None:
    """A file or a folder of the host, to be read."""
    if os.path.isdir(_BEFORE + source):
        _bind(source, target, _READ_ONLY | _NO_SUID | _NO_DEVICES)
    elif os.path.exists(_BEFORE + source):
        _make(os.path.dirname(target))
        _bind_file(source, target, _READ_ONLY | _NO_SUID | _NO_DEVICES)


def _bind(source: str, target: str, attributes: int) -> None:
    _make(target)
    mount(_BEFORE + source, target, BIND | RECURSIVE)
    _set(target, attributes)


def _bind_file(source: str, target: str, attributes: int) -> None:
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    mount(_BEFORE + source, target, BIND)
    _set(target, attributes)


def _set(target: str, attributes: int) -> None:
    """On everything that is mounted there, besides what it has: nothing of the host's own fences is taken away."""
    said = struct.pack("=4Q", attributes, 0, 0, 0)
    buffer = ctypes.create_string_buffer(said, len(said))
    kernel.syscall(_MOUNT_SETATTR, _AT_CWD, target.encode(), _WHOLE_TREE, buffer, len(said))


def _make_devices() -> None:
    _make("/dev")
    mount("tmpfs", "/dev", _NO_SUID, kind="tmpfs", options=f"mode=755,size={DEVICE_ROOM}")
    for name in DEVICES:
        _bind_file(f"/dev/{name}", f"/dev/{name}", _NO_SUID | _NO_EXEC)
    for name, link in DEVICE_LINKS.items():
        os.symlink(link, f"/dev/{name}")


def _room(target: str, room_bytes: int, room_files: int) -> None:
    """Memory that is written like a disk, gone with the sandbox."""
    _make(target)
    options = f"mode=1777,size={room_bytes},nr_inodes={room_files}"
    mount("tmpfs", target, _NO_SUID | _NO_DEVICES, kind="tmpfs", options=options)


def _make(folder: str) -> None:
    os.makedirs(folder, mode=0o755, exist_ok=True)


# ---- capabilities


def _drop_capabilities() -> None:
    """All of them, everywhere, so that no program can bring one back."""
    with open("/proc/sys/kernel/cap_last_cap") as told:
        last = int(told.read())
    for capability in range(last + 1):
        kernel.prctl(kernel.DROP_FROM_BOUNDING_SET, capability)
    option, clear_all = kernel.CLEAR_AMBIENT
    kernel.call("prctl", option, clear_all, 0, 0, 0)
    kernel.call("capset", struct.pack("=Ii", _CAPABILITIES_3, 0), bytes(24))
