"""Landlock: which files the command may read and write, whatever the mounts say; no TCP, no signals to the outside.

A second fence: one mistake in the mounts does not open the host. Takes what the running kernel knows (5.13 and later).
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from typing import Final

from . import kernel

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_ASK_VERSION: Final = 1
_BENEATH: Final = 1

_EXECUTE, _WRITE, _READ, _LIST = (1 << bit for bit in range(4))
_LOOKING: Final = _EXECUTE | _READ | _LIST
_MAKING: Final = sum(1 << bit for bit in (4, 5, 7, 8, 9, 10, 12))  # all but device files
_MOVING, _CUTTING, _CONTROLLING = 1 << 13, 1 << 14, 1 << 15
_FIRST: Final = (1 << 13) - 1
_SINCE: Final = {2: _MOVING, 3: _CUTTING, 5: _CONTROLLING}  # version that brought the right
# not zero: what is mapped of it for writing is memory that no limit counts
_WRITTEN_DEVICES: Final = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
_TCP, _TCP_SINCE = 0b11, 4
_OUTSIDE, _OUTSIDE_SINCE = 0b11, 6  # abstract sockets of, and signals to, whoever is not in this domain


def version() -> int:
    """Which Landlock the kernel has; OSError where it has none."""
    return kernel.syscall(_CREATE, None, 0, _ASK_VERSION)


def restrict(writable: Iterable[str]) -> None:
    """For this process and all it starts, for good: read everything that is mounted, write below these folders, and to
    devices that forget it.
    """
    found = version()
    rights = _FIRST | sum(right for since, right in _SINCE.items() if since <= found)
    rules = _ruleset(found, rights)
    _allow(rules, "/", _LOOKING)
    _allow(rules, "/dev", (_LOOKING | _CONTROLLING) & rights)
    for device in _WRITTEN_DEVICES:
        _allow(rules, device, _WRITE)
    for folder in writable:
        _allow(rules, folder, (_LOOKING | _WRITE | _MAKING | _MOVING | _CUTTING) & rights)
    kernel.prctl(kernel.SET_NO_NEW_PRIVS, 1)
    kernel.syscall(_RESTRICT, rules, 0)
    os.close(rules)


def _ruleset(found: int, rights: int) -> int:
    fields = [rights]
    fields += [_TCP] if found >= _TCP_SINCE else []
    fields += [_OUTSIDE] if found >= _OUTSIDE_SINCE else []
    said = struct.pack(f"={len(fields)}Q", *fields)
    return kernel.syscall(_CREATE, ctypes.create_string_buffer(said, len(said)), len(said), 0)


def _allow(rules: int, folder: str, rights: int) -> None:
    beneath = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    said = struct.pack("=Qi", rights, beneath)
    try:
        kernel.syscall(_ADD_RULE, rules, _BENEATH, ctypes.create_string_buffer(said, len(said)), 0)
    finally:
        os.close(beneath)
