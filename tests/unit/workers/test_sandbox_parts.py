"""The parts of a sandbox that can be judged without one."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from workers.sandbox import host
from workers.sandbox.inside import seccomp
from workers.sandbox.jobs import SandboxFailed, Stream
from workers.sandbox.output import Kept

ARCHITECTURE: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, KILLED, REFUSED = 0x7FFF0000, 0x80000000, 0x00050000
NOT_PERMITTED, INVALID, NO_SUCH_CALL, NOT_SUPPORTED, NO_SUCH_FAMILY = 1, 22, 38, 95, 97
# memfd_create, memfd_secret, shmget, semget, msgget, vmsplice, landlock_create_ruleset, io_setup
UNCOUNTED: Final = {
    "x86_64": (319, 447, 29, 64, 68, 278, 444, 206),
    "aarch64": (279, 447, 194, 190, 186, 75, 444, 0),
}
WATCHES: Final = {"x86_64": (253, 294), "aarch64": (26,)}  # inotify_init, inotify_init1
PINNING: Final = {"x86_64": (275, 276, 40), "aarch64": (76, 77, 71)}  # splice, tee, sendfile
FALLOCATE: Final = {"x86_64": 285, "aarch64": 47}
OPTIONS: Final = {
    "x86_64": {"socketpair": 53, "setsockopt": 54, "fcntl": 72, "mmap": 9},
    "aarch64": {"socketpair": 199, "setsockopt": 208, "fcntl": 25, "mmap": 222},
}
CALLS: Final = {
    "x86_64": {"read": 0, "mount": 165, "clone": 56, "clone3": 435, "socket": 41, "ioctl": 16, "mknodat": 259},
    "aarch64": {"read": 63, "mount": 40, "clone": 220, "clone3": 435, "socket": 198, "ioctl": 29, "mknodat": 33},
}


def judge(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the filter answers, as the kernel reads it."""
    said = struct.pack("=IIQ6Q", number, architecture or ARCHITECTURE[machine], 0, *(*arguments, *[0] * 6)[:6])
    program, at, held = seccomp.program(machine), 0, 0
    while True:
        code, if_so, if_not, value = program[at]
        at += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("=I", said, value)
            case 0x06:
                return value
            case _:
                holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
                at += if_so if holds else if_not


@pytest.mark.parametrize("machine", sorted(CALLS))
def test_the_filter_refuses_what_leads_out_and_lets_the_rest_pass(machine: str) -> None:
    calls = CALLS[machine]
    assert judge(machine, calls["read"]) == judge(machine, calls["mknodat"]) == ALLOWED
    assert judge(machine, calls["mount"]) == REFUSED | NOT_PERMITTED
    assert judge(machine, calls["clone"], 0x11) == ALLOWED
    assert judge(machine, calls["clone"], 0x10000000 | 0x11) == REFUSED | NOT_PERMITTED
    assert judge(machine, calls["clone3"]) == REFUSED | NO_SUCH_CALL
    assert judge(machine, calls["socket"], 1) == ALLOWED
    assert [judge(machine, calls["socket"], family) for family in (2, 10, 16, 17, 40)] == [REFUSED | NO_SUCH_FAMILY] * 5
    assert judge(machine, calls["ioctl"], 0, 0x5401) == ALLOWED
    assert judge(machine, calls["ioctl"], 0, 0x5412) == REFUSED | NOT_PERMITTED
    assert judge(machine, 1000) == REFUSED | NO_SUCH_CALL


@pytest.mark.parametrize("machine", sorted(CALLS))
def test_memory_and_room_that_no_limit_counts_are_refused_as_if_the_kernel_had_none(machine: str) -> None:
    assert {judge(machine, number) for number in UNCOUNTED[machine]} == {REFUSED | NO_SUCH_CALL}
    assert {judge(machine, number) for number in PINNING[machine]} == {REFUSED | INVALID}
    assert judge(machine, FALLOCATE[machine]) == REFUSED | NOT_SUPPORTED
    requests = [judge(machine, CALLS[machine]["ioctl"], 3, how) for how in (0x40305828, 0x4030582A, 0x40305839)]
    assert requests == [REFUSED | NOT_SUPPORTED] * 3


@pytest.mark.parametrize("machine", sorted(CALLS))
def test_who_looks_at_a_workspace_is_told_to_nobody(machine: str) -> None:
    assert {judge(machine, number) for number in WATCHES[machine]} == {REFUSED | NO_SUCH_CALL}
    control = OPTIONS[machine]["fcntl"]
    assert [judge(machine, control, 3, how) for how in (1026, 1, 1031)] == [REFUSED | INVALID, ALLOWED, ALLOWED]


@pytest.mark.parametrize("machine", sorted(CALLS))
def test_pairs_are_of_unix_sockets_and_keep_the_room_they_have(machine: str) -> None:
    pair, option = OPTIONS[machine]["socketpair"], OPTIONS[machine]["setsockopt"]
    assert [judge(machine, pair, family) for family in (1, 2, 40)] == [ALLOWED, *[REFUSED | NO_SUCH_FAMILY] * 2]
    assert judge(machine, option, 3, 1, 7) == REFUSED, "with 0: that it was done"
    assert judge(machine, option, 3, 1, 16) == judge(machine, option, 3, 6, 7) == ALLOWED


@pytest.mark.parametrize("machine", sorted(CALLS))
def test_mapped_memory_is_a_file_s_or_one_process_s_own(machine: str) -> None:
    shared, private, anonymous = 1, 2, 0x20
    answers = [
        judge(machine, OPTIONS[machine]["mmap"], 0, 4096, 3, flags)
        for flags in (shared, private, private | anonymous, shared | anonymous, 3 | anonymous | 0x4000)
    ]
    assert answers == [ALLOWED] * 3 + [REFUSED | NOT_PERMITTED] * 2


@pytest.mark.parametrize("machine", sorted(CALLS))
def test_calls_by_other_numbers_end_the_process(machine: str) -> None:
    assert judge(machine, CALLS[machine]["read"], architecture=0x40000003) == KILLED
    assert judge(machine, 0x40000000 | CALLS[machine]["read"]) == KILLED


def test_there_is_no_filter_for_a_machine_that_nobody_listed() -> None:
    with pytest.raises(OSError, match="riscv64"):
        seccomp.program("riscv64")


def test_the_head_and_the_tail_are_kept() -> None:
    kept = Kept(4)
    for chunk in (b"ab", b"cdef", b"g" * 100, b"xyz"):
        kept.add(chunk)
    assert kept.stream() == Stream(b"abcd", b"gxyz", 109)


def test_what_fits_has_no_tail() -> None:
    kept = Kept(4)
    kept.add(b"abcd")
    assert kept.stream() == Stream(b"abcd", b"", 4)


def test_a_failure_survives_a_journey() -> None:
    failed = SandboxFailed("landlock", 1, "bwrap: /somewhere: no")
    again = type(failed)(*json.loads(json.dumps(failed.args)))
    assert (again.doing, again.number, again.message) == (failed.doing, failed.number, failed.message)
    assert "/somewhere" not in failed.message


def test_a_host_without_a_folder_to_mount_below_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for stages, stage in (((), None), ((str(tmp_path),), str(tmp_path)), ((str(tmp_path / "none"),), None)):
        monkeypatch.setattr(host, "STAGES", stages)
        assert host.Host("/usr/bin/python3", "/usr", None, None, None).stage == stage


def test_what_commands_may_read_is_told_by_its_folder(tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "python")
    found = host.Host("/usr/bin/python3", str(tmp_path / "link"), None, None, None)
    assert found.showing(tmp_path / "python" / "home") == str(tmp_path / "link")
    assert found.showing(Path("/usr/src/app/.mandor")) == found.showing(Path("/usr")) == "/usr"
    assert found.showing(tmp_path / "pythons") is found.showing(Path("/")) is None


def test_tasks_are_counted_whatever_somebody_calls_a_process() -> None:
    odd = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'a\\fb'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", odd], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as named:
        assert named.stdout is not None
        named.stdout.readline()
        assert host.tasks_of(os.getuid()) >= 2
        named.communicate()
