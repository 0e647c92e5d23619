"""A module as on a machine that lacks something: python -m tests.support.rungless landlock examples.orders.demo ...

bubblewrap    is not installed: the second rung is the strongest
landlock      is refused, as by a kernel that is too old: no sandbox works
namespaces    are refused, as in many containers: bubblewrap is installed, and no start of it works
"""

import ctypes
import os
import runpy
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from workers.sandbox import host
from workers.sandbox.inside import kernel, seccomp

_LANDLOCK: Final = (444, 445, 446)
_SET_FILTER, _BY_FILTER = 22, 2


def without_bubblewrap() -> None:
    """Not in any folder of the system, for this process and those it forks."""
    vars(host)["_PROGRAM_FOLDERS"] = ()


def without_landlock() -> None:
    """The kernel's calls for it are forbidden to this process and all it starts."""
    _forbid(seccomp._each_refused(_LANDLOCK))


def without_namespaces() -> None:
    """Nor may this process, nor any that it starts, make one."""
    which, _ = seccomp._MACHINES[os.uname().machine]
    flags = [(seccomp._LOAD, 0, 0, seccomp._FIRST_AT), (seccomp._ANY_BIT, 0, 1, seccomp._NAMESPACES)]
    unshare = seccomp._REFUSED["unshare"][which]
    assert unshare is not None
    _forbid(
        (
            *seccomp._each_refused((unshare,)),
            *seccomp._when(seccomp._CLONE3[which], [seccomp._refuse(seccomp._NO_SUCH_CALL)]),
            *seccomp._when(seccomp._CLONE[which], [*flags, seccomp._refuse(1), seccomp._ALLOW]),
        )
    )


def _forbid(refusals: Iterable[seccomp.Instruction]) -> None:
    lines = [(0x20, 0, 0, 0), *refusals, seccomp._ALLOW]
    code = b"".join(struct.pack("=HBBI", *one) for one in lines)
    filled = ctypes.create_string_buffer(code, len(code))
    kernel.prctl(kernel.SET_NO_NEW_PRIVS, 1)
    said = struct.pack("@HP", len(lines), ctypes.addressof(filled))
    kernel.call("prctl", _SET_FILTER, _BY_FILTER, said, 0, 0)


WITHOUT: Final[Mapping[str, Callable[[], None]]] = {
    "bubblewrap": without_bubblewrap,
    "landlock": without_landlock,
    "namespaces": without_namespaces,
}


def main() -> None:
    what, module, *_ = sys.argv[1:]
    WITHOUT[what]()
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
