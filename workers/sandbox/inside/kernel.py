"""Calls to the kernel for which Python has no function."""

import ctypes
import os
from typing import Final

SET_PARENT_DEATH_SIGNAL: Final = 1  # prctl(2)
SET_DUMPABLE: Final = 4
DROP_FROM_BOUNDING_SET: Final = 24
SET_SUBREAPER: Final = 36
SET_NO_NEW_PRIVS: Final = 38
CLEAR_AMBIENT: Final = (47, 4)

_libc: Final = ctypes.CDLL(None, use_errno=True)
_word: Final = ctypes.c_ulong


def call(name: str, *arguments: int | bytes | None) -> int:
    """A function of the C library; OSError where it answers with -1."""
    return _checked(name, getattr(_libc, name)(*map(_passed, arguments)))


def syscall(number: int, *arguments: "int | bytes | ctypes.Array[ctypes.c_char] | None") -> int:
    """A system call by its number; OSError where it fails."""
    return _checked(f"syscall {number}", _libc.syscall(_word(number), *map(_passed, arguments)))


def prctl(option: int, value: int = 0) -> None:
    """prctl(2) with one value."""
    call("prctl", option, value, 0, 0, 0)


def _passed(argument: object) -> object:
    return _word(argument) if isinstance(argument, int) else argument


def _checked(name: str, answer: int) -> int:
    if answer == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return answer
