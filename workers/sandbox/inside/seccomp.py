"""Seccomp: system calls that no command needs and that reach deep into the kernel, or out of the sandbox, are refused.

The filter is built here, for x86_64 and aarch64. It refuses what it names and lets the rest pass; what is newer than
the list does not exist for the command. A call of another architecture's numbering ends the process.
"""

import ctypes
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Final

from . import kernel

Instruction = tuple[int, int, int, int]

# per call: its number on x86_64 and on aarch64, None where that has no such call
_REFUSED: Final[Mapping[str, tuple[int | None, int | None]]] = {
    # file systems and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "fanotify_init": (300, 262),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # machinery inside the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "lookup_dcookie": (212, 18),
    # the machine
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "uselib": (134, None),
    "sysfs": (139, None),
}
# answered as by a kernel without them, since programs have another way then
_MISSING: Final[Mapping[str, tuple[int | None, int | None]]] = {
    # memory that is nobody's address space, so that no limit counts it
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "vmsplice": (278, 75),  # keeps a huge page whole for each few bytes in a pipe
    "landlock_create_ruleset": (444, 444),
    # of which the whole machine has so many
    "io_setup": (206, 0),
    # tell of those who look at a workspace
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
}
# pages of a file that stay in a pipe, whole, when the file is gone; programs read and write instead
_PINNING: Final[Mapping[str, tuple[int, int]]] = {
    "splice": (275, 76),
    "tee": (276, 77),
    "sendfile": (40, 71),
}
_FALLOCATE: Final = (285, 47)  # takes room on the disk that neither a file's size nor the limit of it knows
_MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_CLONE, _CLONE3, _SOCKET, _IOCTL = (56, 220), (435, 435), (41, 198), (16, 29)
_PAIR, _OPTION, _CONTROL, _MAP = (53, 199), (54, 208), (72, 25), (9, 222)
_NEWEST: Final = 452  # fchmodat2: the last call that was looked at
_OTHER_NUMBERING: Final = 0x40000000  # x32
_NAMESPACES: Final = 0x7E020080  # of clone(2): every CLONE_NEW* flag
_UNIX: Final = 1
_OF_ANY_SOCKET, _SEND_ROOM = 1, 7  # SOL_SOCKET, SO_SNDBUF
_NOTIFY: Final = 1026  # F_NOTIFY: inotify's forerunner
_ANONYMOUS, _SHARED = 0x20, 1  # such memory stays whole as long as one page of it is mapped
_PREALLOCATE: Final = (0x40305828, 0x4030582A, 0x40305839)  # FS_IOC_RESVSP, RESVSP64, ZERO_RANGE: as fallocate
_FEED_TERMINAL: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type on somebody's terminal

_LOAD, _MATCH, _AT_LEAST, _ANY_BIT, _ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _MACHINE_AT, _FIRST_AT, _SECOND_AT, _THIRD_AT, _FOURTH_AT = 0, 4, 16, 24, 32, 40
_ALLOW: Final = (_ANSWER, 0, 0, 0x7FFF0000)
_KILL: Final = (_ANSWER, 0, 0, 0x80000000)
_DONE, _NOT_PERMITTED, _INVALID, _NO_SUCH_CALL, _NOT_SUPPORTED, _NO_SUCH_FAMILY = 0, 1, 22, 38, 95, 97
_SET_FILTER: Final = 22  # prctl: PR_SET_SECCOMP
_MODE_FILTER: Final = 2


def restrict() -> None:
    """For this process and all it starts, for good. OSError where the kernel has no filters, or no list is for it."""
    instructions = program(os.uname().machine)
    code = b"".join(struct.pack("=HBBI", *one) for one in instructions)
    filled = ctypes.create_string_buffer(code, len(code))
    said = struct.pack("@HP", len(instructions), ctypes.addressof(filled))
    kernel.prctl(kernel.SET_NO_NEW_PRIVS, 1)
    kernel.call("prctl", _SET_FILTER, _MODE_FILTER, said, 0, 0)


def program(machine: str) -> list[Instruction]:
    """The filter for a machine, as uname calls it."""
    if machine not in _MACHINES:
        raise OSError(38, f"there is no list of system calls for {machine}")
    which, architecture = _MACHINES[machine]
    return [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_MATCH, 1, 0, architecture),
        _KILL,
        (_LOAD, 0, 0, _NUMBER_AT),
        *_unless_below(_OTHER_NUMBERING, _KILL),
        *_unless_below(_NEWEST + 1, _refuse(_NO_SUCH_CALL)),
        *_each_refused(_numbers(_REFUSED, which)),
        *_each_refused(_numbers(_MISSING, which), _NO_SUCH_CALL),
        *_each_refused(_numbers(_PINNING, which), _INVALID),
        *_when(_FALLOCATE[which], [_refuse(_NOT_SUPPORTED)]),
        *_when(_CLONE3[which], [_refuse(_NO_SUCH_CALL)]),  # its flags lie in memory; without it, C libraries use clone
        *_when(_CLONE[which], [(_LOAD, 0, 0, _FIRST_AT), (_ANY_BIT, 0, 1, _NAMESPACES), _refuse(1), _ALLOW]),
        *_when(_SOCKET[which], _unless_unix()),
        *_when(_PAIR[which], _unless_unix()),
        *_when(_OPTION[which], _keep_the_room()),
        *_when(_CONTROL[which], [(_LOAD, 0, 0, _SECOND_AT), *_when(_NOTIFY, [_refuse(_INVALID)]), _ALLOW]),
        *_when(_MAP[which], _unless_counted()),
        *_when(_IOCTL[which], [(_LOAD, 0, 0, _SECOND_AT), *_requests_refused(), _ALLOW]),
        _ALLOW,
    ]


def _refuse(number: int) -> Instruction:
    """The call fails with this errno."""
    return _ANSWER, 0, 0, 0x00050000 | number


def _numbers(calls: Mapping[str, tuple[int | None, int | None]], which: int) -> tuple[int, ...]:
    return tuple(number for one in calls.values() if (number := one[which]) is not None)


def _unless_unix() -> list[Instruction]:
    return [(_LOAD, 0, 0, _FIRST_AT), (_MATCH, 1, 0, _UNIX), _refuse(_NO_SUCH_FAMILY), _ALLOW]


def _keep_the_room() -> list[Instruction]:
    """How much may wait in a socket stays as it is, and nobody is told: so it is where a system allows no more."""
    room = [(_LOAD, 0, 0, _THIRD_AT), *_when(_SEND_ROOM, [_refuse(_DONE)]), _ALLOW]
    return [(_LOAD, 0, 0, _SECOND_AT), *_when(_OF_ANY_SOCKET, room), _ALLOW]


def _unless_counted() -> list[Instruction]:
    """Memory that is mapped, unless it is shared and no file's."""
    flags = [(_LOAD, 0, 0, _FOURTH_AT), (_ANY_BIT, 0, 2, _ANONYMOUS), (_ANY_BIT, 0, 1, _SHARED)]
    return [*flags, _refuse(_NOT_PERMITTED), _ALLOW]


def _requests_refused() -> Iterator[Instruction]:
    yield from _each_refused(_FEED_TERMINAL)
    yield from _each_refused(_PREALLOCATE, _NOT_SUPPORTED)


def _each_refused(values: tuple[int, ...], number: int = _NOT_PERMITTED) -> Iterator[Instruction]:
    for value in values:
        yield from _when(value, [_refuse(number)])


def _when(value: int, then: list[Instruction]) -> list[Instruction]:
    """These instructions, the last of which answers, where the loaded value is this one."""
    return [(_MATCH, 0, len(then), value), *then]


def _unless_below(least: int, then: Instruction) -> list[Instruction]:
    return [(_AT_LEAST, 0, 1, least), then]
