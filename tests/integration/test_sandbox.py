"""Real sandboxes: what a hostile command can reach, how commands end, and that nothing of them is left.

Each test runs on both sandboxes, by whoever runs the tests; where that is root, all of it once more by nobody.
"""

import os
import re
import resource
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.settings import Settings
from schemas.policy import Rung
from tests.support.forks import children, in_fork
from tests.support.sandboxes import (
    LIMITS,
    NEEDS_ROOT,
    ROOT,
    SECRET,
    Box,
    again_by_nobody,
    alive,
    box,
    canary_in,
    found_behind,
    ladder,
)
from tests.support.waiting import eventually
from workers import orphans
from workers.outcomes import LeaseLost
from workers.sandbox import host, rungs
from workers.sandbox.host import Host
from workers.sandbox.jobs import Ended, Exited, Flooded, Job, SandboxFailed, Signalled, TimedOut, TooHeavy
from workers.sandbox.ladder import find
from workers.sandbox.ownership import hand_to
from workers.sandbox.running import run

SANDBOXES = (Rung.BUBBLEWRAP, Rung.NAMESPACES)


@pytest.fixture(params=SANDBOXES, ids=str)
def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> Box:
    return box(request.param, tmp_path)


@pytest.fixture(params=tuple(Rung), ids=str)
def any_rung(request: pytest.FixtureRequest, tmp_path: Path) -> Box:
    return box(request.param, tmp_path)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return canary_in(tmp_path)


# ---- how commands end


def test_code_signal_time_and_flood_are_told_apart(any_rung: Box) -> None:
    assert any_rung.run("exit 3").end == Exited(3)
    assert any_rung.run("kill -11 $$").end == Signalled(11)
    assert any_rung.run("exec sleep 30", timeout_s=0.3).end == TimedOut()
    assert any_rung.run("exec cat /dev/zero").end == Flooded()


def test_a_deaf_command_is_killed_after_the_grace(any_rung: Box) -> None:
    began, mark = time.monotonic(), f"deaf-{os.getpid()}"  # other processes of tests are deaf, too
    ended = any_rung.run(f"trap '' TERM INT HUP; while :; do sleep 0.1; done; : {mark}", timeout_s=0.3)
    assert ended.end == TimedOut()
    assert 0.6 <= time.monotonic() - began < 5
    assert alive(mark) == []


def test_one_that_listens_may_tidy_up(any_rung: Box) -> None:
    ended = any_rung.run("trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done", timeout_s=0.3, grace_s=5)
    assert (ended.end, ended.stdout.head) == (TimedOut(), b"bye\n")


def test_daemons_end_with_the_command(any_rung: Box) -> None:
    began = time.monotonic()
    ended = any_rung.run("setsid -f sleep 4712; (sleep 4713 &) ; sleep 4714 & echo hi")
    assert (ended.end, ended.stdout.head) == (Exited(0), b"hi\n")
    assert time.monotonic() - began < 5, "a child that holds the output must not hold the worker"
    assert [alive(f"sleep\0{number}") for number in (4712, 4713, 4714)] == [[], [], []]


def test_what_stops_the_attempt_ends_the_command(any_rung: Box) -> None:
    def check() -> None:
        if alive("sleep\x004715"):
            raise LeaseLost("somebody else has it")

    with pytest.raises(LeaseLost):
        any_rung.run("setsid -f sleep 4715; sleep 4715", check=check)
    assert alive("sleep\x004715") == []


@pytest.mark.parametrize("name", ["KILL", "INT", "STOP"])
def test_without_a_sandbox_too_it_ends_with_the_process_that_it_killed_above_it(tmp_path: Path, name: str) -> None:
    """In a worker's child, which adopts. What else that child had started is not the command's."""
    unfenced, mark = box(Rung.RLIMITS, tmp_path), "sleep\x004718"

    def attacked() -> str:
        orphans.adopt()
        own = subprocess.Popen(["sleep", "4719"])
        line = f"setsid -f sleep 4718; setsid sleep 4718 & kill -{name} $PPID; sleep 4718"
        ended = unfenced.run(line, timeout_s=0.5)
        told = f"{type(ended.end).__name__} {alive(mark)} {own.poll()}"
        own.kill()
        own.wait()
        return told

    end = "TimedOut" if name == "STOP" else "Signalled"
    assert in_fork(attacked) == f"{end} [] None"


def test_a_frozen_worker_s_command_is_ended_from_within(any_rung: Box) -> None:
    """Nobody outside looks at the clock any more: this check is where the worker stands still."""

    def check() -> None:
        if alive("sleep\x004716"):
            eventually(lambda: not alive("sleep\x004716"), what="the end of the command")

    assert any_rung.run("setsid -f sleep 4716; sleep 4716", timeout_s=0.3, check=check).end == TimedOut()


def test_output_is_bounded_and_counted(any_rung: Box) -> None:
    ended = any_rung.run("echo first; head -c 3000000 /dev/zero | tr '\\0' a; echo; echo last; printf '\\377' >&2")
    assert ended.end == Exited(0)
    assert ended.stdout.bytes == 6 + 3_000_000 + 1 + 5
    assert (ended.stdout.head[:6], ended.stdout.tail[-6:]) == (b"first\n", b"\nlast\n")
    assert len(ended.stdout.head) == len(ended.stdout.tail) == 4096
    assert (ended.stderr.head, ended.stderr.tail) == (b"\xff", b"")


def open_descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_nothing_of_many_commands_is_left(any_rung: Box) -> None:
    before, before_children = open_descriptors(), children()
    mounts = len(Path("/proc/self/mountinfo").read_text().splitlines())
    for _ in range(4):
        assert any_rung.run("i=0; while [ $i -lt 10 ]; do (sleep 0.01 &); i=$((i+1)); done").end == Exited(0)
    assert open_descriptors() == before
    assert len(Path("/proc/self/mountinfo").read_text().splitlines()) == mounts
    assert children() == before_children


# ---- nothing is started


def test_a_program_that_is_not_there_was_not_started(any_rung: Box) -> None:
    with pytest.raises(SandboxFailed) as caught:
        any_rung.start("/nowhere")
    assert (caught.value.doing, caught.value.number) == ("exec", 2)


def test_a_line_that_is_too_long_was_not_started(any_rung: Box) -> None:
    with pytest.raises(SandboxFailed) as caught:
        any_rung.run("echo " + "a" * 200_000)
    assert (caught.value.doing, caught.value.number) == ("exec", 7)


def test_without_descriptors_nothing_is_started_and_none_is_left_open(any_rung: Box) -> None:
    before, (most, hard) = open_descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    try:
        for room in (0, 1, 2, 3, 4):
            resource.setrlimit(resource.RLIMIT_NOFILE, (free + room, hard))
            with pytest.raises(SandboxFailed, match="descriptors, errno 24"):
                run(any_rung.rung, ladder().host, Job(("/bin/true",), any_rung.workspace, LIMITS))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    assert open_descriptors() == before


def test_without_landlock_no_command_starts() -> None:
    """The inner fence fails after the outer ones stand: the kernel's calls for it are forbidden to this process."""
    found = found_behind("from tests.support.rungless import without_landlock\nwithout_landlock()")
    assert found["working"] == []
    assert all("landlock, errno 1" in found["missing"][rung] for rung in SANDBOXES if rung in ladder().working)


def test_no_sandbox_shows_the_home_folder(tmp_path: Path) -> None:
    """As with a working directory below /usr: passwords, ledger and workspaces are of the commands' user."""
    (tmp_path / "home").symlink_to("/usr/src/app/.mandor")
    for home in (Path("/usr/src/app/.mandor"), tmp_path / "home", Path(ladder().host.prefix) / "home"):
        found = find(Settings(home=home, min_rung=Rung.NAMESPACES))
        assert found.working == ()
        assert all("MANDOR_HOME is below" in found.missing[rung] for rung in SANDBOXES if rung in ladder().working)


def test_without_a_folder_to_mount_below_root_has_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "STAGES", ())
    found = find(Settings(min_rung=Rung.NAMESPACES))
    if ladder().host.uid is None:
        assert found.working == tuple(rung for rung in SANDBOXES if rung in ladder().working)
    else:
        assert "no folder to mount others below" in found.missing[Rung.NAMESPACES]


def test_without_namespaces_there_is_no_sandbox() -> None:
    """As in many containers: bubblewrap is installed, and each start of it fails. Orders need such memory."""
    found = found_behind("seccomp._MISSING.pop('memfd_create')\nseccomp.restrict()")
    assert found["working"] == []
    assert "errno 1" in found["missing"][Rung.NAMESPACES]


# ---- what a command can reach


def test_environment_and_arguments_hold_no_secret(sandbox: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BROKER_URL", "OPENAI_API_KEY", "ACME_TOKEN_7", "LD_PRELOAD_X"):
        monkeypatch.setenv(name, SECRET)
    said = sandbox.said("env; export -p; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>&1")
    assert SECRET not in said
    assert set(re.findall(r"^([A-Z_]+)=", said, re.MULTILINE)) <= {"HOME", "PATH", "LANG", "TMPDIR", "PWD", "OLDPWD"}


def test_only_three_descriptors_are_open(sandbox: Box) -> None:
    held = os.open(ROOT / "README.md", os.O_RDONLY)
    os.set_inheritable(held, True)
    try:
        assert sandbox.said("exec ls /proc/self/fd").split() == ["0", "1", "2", "3"]  # the fourth is what ls opens
    finally:
        os.close(held)


def test_nothing_outside_is_written_or_read(sandbox: Box, canary: Path) -> None:
    before = (canary / "secret.txt").stat()
    said = sandbox.said(
        f"cat {canary}/secret.txt ../canary/secret.txt /etc/shadow /etc/passwd; ls -a ..;"
        f"touch {canary}/x /x /etc/x /usr/x /usr/local/bin/x /dev/x /run/x;"
        f"ln {canary}/secret.txt hard; chmod 777 {canary}/secret.txt; touch -d 2001-01-01 {canary}/secret.txt;"
        "touch mine && mkdir -p a/b && mv mine a/b/mine && echo $(ls a/b) > kept; "
        "touch /tmp/own /dev/shm/own && echo ok"
    )
    assert SECRET not in said
    assert "root:" not in said
    assert said.endswith("ok\n")
    assert [path.name for path in canary.iterdir()] == ["secret.txt"]
    after = (canary / "secret.txt").stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_nlink) == (before.st_mode, before.st_mtime_ns, before.st_nlink)
    assert (sandbox.workspace / "kept").read_text() == "mine\n"
    assert not any(Path(folder, "own").exists() for folder in ("/tmp", "/dev/shm"))


def test_of_others_workspaces_not_even_the_names_are_told(sandbox: Box) -> None:
    """Its own is, by the list of mounts: docs/sandbox.md says so."""
    (sandbox.workspace.parent / "another-run-s").mkdir()
    assert "another-run-s" not in sandbox.said("cat /proc/self/mountinfo /proc/self/mounts; ls -a /run /run/mandor")


def test_the_next_command_finds_nothing_in_memory(sandbox: Box) -> None:
    assert sandbox.said("echo me > /tmp/mark; echo me > /dev/shm/mark") == ""
    assert "me" not in sandbox.said("cat /tmp/mark /dev/shm/mark 2>/dev/null")


def test_there_is_no_network(sandbox: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", 0))
        for listener in (server, datagrams):
            listener.setblocking(False)
        ports = server.getsockname()[1], datagrams.getsockname()[1]
        said = sandbox.said(
            f"bash -c 'echo x > /dev/tcp/127.0.0.1/{ports[0]}'; bash -c 'echo x > /dev/udp/127.0.0.1/{ports[1]}';"
            "bash -c 'echo x > /dev/tcp/1.1.1.1/80'"
        )
        assert said.count("bash: socket: Address family not supported") == 3
        with pytest.raises(BlockingIOError):
            server.accept()
        with pytest.raises(BlockingIOError):
            datagrams.recv(1)


def test_no_privilege_is_held_or_got(sandbox: Box) -> None:
    status = dict(line.split(":\t", 1) for line in sandbox.said("cat /proc/self/status").splitlines() if ":\t" in line)
    assert {
        name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    } == dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert "0" not in status["Uid"].split()
    said = sandbox.said(
        "unshare -Urm echo nested; mount -t tmpfs t . && echo mounted; mknod d b 8 0 && echo node;"
        "chroot / echo rooted; mkfifo pipe && echo pipe"
    )
    assert not re.search(r"^(nested|mounted|node|rooted)$", said, re.MULTILINE)
    assert "pipe\n" in said


def test_other_processes_are_out_of_reach(sandbox: Box) -> None:
    said = sandbox.said(
        f"kill -0 {os.getpid()} && echo REACHED; cat /proc/1/maps /proc/1/mem && echo READ;"
        "ls /proc/1/fd && echo LISTED; kill -9 1; ls /proc | grep -c '^[0-9]'"
    )
    assert not re.search("REACHED|READ|LISTED", said)
    assert int(said.split()[-1]) <= 5


@pytest.mark.parametrize("scope", ["as here", "none"])
def test_nothing_inside_interrupts_its_first_process(sandbox: Box, monkeypatch: pytest.MonkeyPatch, scope: str) -> None:
    """Before Linux 6.12 Landlock keeps no signal from it."""
    if scope == "none":
        monkeypatch.setattr(rungs, "_python", without_signal_scope)
    ended = sandbox.run("kill -INT 1; kill -TERM 1; kill -HUP 1; sleep 0.2; echo still here")
    assert (ended.end, ended.stdout.head) == (Exited(0), b"still here\n")
    assert b"Traceback" not in ended.stderr.head


PYTHON = rungs._python


def without_signal_scope(host: Host, folder: str, module: str) -> tuple[str, ...]:
    *start, begin = PYTHON(host, folder, module)
    main = f"from inside.{module} import main"
    return (*start, begin.replace(main, f"from inside import landlock; landlock._OUTSIDE_SINCE = 99; {main}"))


def test_limits_hold_and_cannot_be_raised(sandbox: Box) -> None:
    assert sandbox.run("ulimit -n 4096").end != Exited(0)
    assert sandbox.run("ulimit -v unlimited").end != Exited(0)
    assert sandbox.said("ulimit -p; ulimit -c; ulimit -n").split() == ["64", "0", "256"]
    assert sandbox.run("while :; do :; done", cpu_s=1).end == Signalled(9)
    assert "1048576\n" in sandbox.said("head -c 3000000 /dev/zero > big; wc -c < big", file_bytes=1 << 20)
    assert "No space left" in sandbox.said("head -c 80000000 /dev/zero > /tmp/big")
    hog = "head -c 100000000 /dev/zero | tail -c 100000000 | wc -c"
    assert int(sandbox.run(hog, memory_bytes=64 << 20).stdout.head or b"0") == 0
    said = sandbox.said("i=0; while [ $i -lt 200 ]; do sleep 4717 & i=$((i+1)); done; echo $i")
    assert "fork" in said
    assert len(alive("sleep\x004717")) == 0


def test_processes_that_its_user_has_already_are_not_the_command_s(tmp_path: Path) -> None:
    """Without a sandbox the kernel counts all of a user's; where that can be chosen, of one whom no other test has."""
    unfenced, found = box(Rung.RLIMITS, tmp_path), ladder().host
    user = found if found.uid is None else replace(found, uid=61_999, gid=61_999)
    uid = os.geteuid() if user.uid is None else user.uid
    hand_to(unfenced.workspace, user.uid, user.gid)

    def said(line: str) -> str:
        job = Job(("/bin/sh", "-c", f"exec 2>&1; {line}"), unfenced.workspace, LIMITS)
        return run(unfenced.rung, user, job).stdout.head.decode()

    others = [subprocess.Popen(["sleep", "4720"], user=uid) for _ in range(LIMITS.processes + 10)]
    try:
        assert said("for i in 1 2 3; do sleep 0.01 & done; wait; echo fine") == "fine\n"
        assert "fork" in said("i=0; while [ $i -lt 400 ]; do sleep 4721 & i=$((i+1)); done")
    finally:
        for one in others:
            one.kill()
            one.wait()
    assert alive("sleep\x004721") == []


def by_python(sandbox: Box, program: str, **limits: Any) -> Ended:
    """A program of the workspace."""
    (sandbox.workspace / "try.py").write_text(program)
    return sandbox.run(f"exec {ladder().host.python} try.py 2>&1", **limits)


UNCOUNTED = """
import ctypes, errno, mmap, os, platform, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
word = ctypes.c_ulong
by_number = {"x86_64": (206, 253, 294), "aarch64": (0, 26, 26)}[platform.machine()]
def told(name, answer):
    refused = answer in (-1, ctypes.c_void_p(-1).value)
    print(name, errno.errorcode[ctypes.get_errno()] if refused else "PASSED")
read_end, write_end = os.pipe()
file = os.open("f", os.O_CREAT | os.O_RDWR)
os.write(file, b"12")
piece = ctypes.create_string_buffer(b"piece")
vector = (word * 2)(ctypes.addressof(piece), 5)
told("memfd_create", libc.memfd_create(b"m", 0))
told("shmget", libc.shmget(0, 4096, 0o1600))
told("semget", libc.semget(0, 32, 0o1600))
told("msgget", libc.msgget(0, 0o1600))
told("vmsplice", libc.vmsplice(write_end, vector, word(1), 0))
told("splice", libc.splice(file, ctypes.byref(word(0)), write_end, None, word(1), 0))
told("tee", libc.tee(read_end, write_end, word(1), 0))
told("sendfile", libc.sendfile(write_end, file, ctypes.byref(word(0)), word(1)))
told("landlock", libc.syscall(word(444), (word * 1)(1), word(8), word(0)))
for name, number in zip(("io_setup", "inotify_init", "inotify_init1"), by_number):
    told(name, libc.syscall(word(number), word(1), ctypes.byref(word(0))))
told("shared", libc.mmap(None, word(4096), 3, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1, word(0)))
told("fallocate", libc.fallocate(file, 1, word(0), word(1 << 20)))
os.posix_fallocate(file, 0, 65536)
print("size", os.fstat(file).st_size)
"""


def test_no_memory_and_no_room_is_had_beside_the_limits(sandbox: Box) -> None:
    """Files in memory that are mapped nowhere, segments, semaphores, queues, rules, pages that stay in a pipe, shared
    memory that stays whole for its last page, and blocks that a file's size does not tell.
    """
    missing = ("memfd_create", "shmget", "semget", "msgget", "vmsplice", "landlock", "io_setup")
    expected = {
        **dict.fromkeys((*missing, "inotify_init", "inotify_init1"), "ENOSYS"),
        **dict.fromkeys(("splice", "tee", "sendfile"), "EINVAL"),
        "shared": "EPERM",
        "fallocate": "ENOTSUP",
        "size": "65536",
    }
    said = by_python(sandbox, UNCOUNTED).stdout.head.decode()
    assert dict(line.split() for line in said.splitlines()) == expected


WATCHING = """
import fcntl, os
try:
    fcntl.fcntl(os.open(".", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS)
except OSError as fault:
    print(fault.errno)
"""


def test_nobody_is_told_of_those_who_look_at_the_workspace(sandbox: Box) -> None:
    """As by inotify, which the test above is refused: what moves behind a look is not counted."""
    assert by_python(sandbox, WATCHING).stdout.head == b"22\n"


def test_devices_are_those_that_keep_nothing(sandbox: Box) -> None:
    """No terminals; and what is mapped of zero for writing is shared memory."""
    names = ("null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr", "shm")
    assert sorted(sandbox.said("ls /dev").split()) == sorted(names)
    said = sandbox.said("head -c 3 /dev/zero | wc -c; echo x > /dev/null; : 3<> /dev/zero")
    assert re.fullmatch(r"3\n.*/dev/zero: Permission denied\n", said)


SOCKETS = """
import socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_VSOCK, 44):
    for make in (socket.socket, socket.socketpair):
        try:
            make(family, socket.SOCK_DGRAM)
        except OSError as fault:
            print(fault.errno)
one, other = socket.socketpair()
before = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * before)
one.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
same = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == before
print(same, one.getsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED))
"""


def test_sockets_are_unix_ones_with_the_room_that_every_one_has(sandbox: Box) -> None:
    assert by_python(sandbox, SOCKETS).stdout.head == b"97\n" * 12 + b"True 1\n"


# ---- the memory of a whole command

HEAVY = {
    "processes": """
import os, time
for _ in range(5):
    if not os.fork():
        kept = b"x" * (50 << 20)
        time.sleep(20)
time.sleep(20)
""",
    "those that let nobody look": """
import ctypes, os, time
for _ in range(5):
    if not os.fork():
        ctypes.CDLL(None).prctl(4, 0)
        kept = b"x" * (50 << 20)
        time.sleep(20)
time.sleep(20)
""",
    "page tables": """
import ctypes, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
for number in range(1, 16000):
    ctypes.memset(libc.mmap(number << 31, 4096, 3, 0x32, -1, 0), 1, 1)
time.sleep(20)
""",
    "connections that nobody accepts": """
import socket, time
listener = socket.socket(socket.AF_UNIX)
listener.bind("listener")
listener.listen(4096)
for _ in range(600):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect("listener")
time.sleep(20)
""",
    "datagrams of senders that have gone": """
import socket, time
kept = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(60)]
time.sleep(20)
""",
}
HEAVY_BYTES = 128 << 20


@pytest.mark.parametrize("what", HEAVY)
def test_a_command_is_ended_that_takes_too_much_memory_altogether(sandbox: Box, what: str) -> None:
    assert by_python(sandbox, HEAVY[what], memory_bytes=HEAVY_BYTES, timeout_s=15).end == TooHeavy()


def test_what_lies_in_memory_counts(sandbox: Box) -> None:
    big = "head -c 60000000 /dev/zero > /tmp/big; head -c 60000000 /dev/zero > /dev/shm/big; sleep 20"
    many = "for one in /tmp /dev/shm; do cd $one; seq -f %0200.0f 16000 | xargs touch; done; sleep 20"
    assert sandbox.run(big, memory_bytes=96 << 20, timeout_s=15).end == TooHeavy()
    assert sandbox.run(many, memory_bytes=40 << 20, timeout_s=15).end == TooHeavy()


def test_a_frozen_worker_s_command_is_held_to_its_memory_too(sandbox: Box) -> None:
    def check() -> None:
        if alive("sleep\x004722"):
            eventually(lambda: not alive("sleep\x004722"), what="the end of the command")

    line = "sleep 4722 & head -c 60000000 /dev/zero > /tmp/big; wait"
    assert sandbox.run(line, memory_bytes=48 << 20, check=check).end == TooHeavy()


SHARING = """
import os, subprocess, time
kept = b"x" * (60 << 20)
children = []
for _ in range(6):
    child = os.fork()
    if not child:
        time.sleep(1.5)
        os._exit(0)
    children.append(child)
began = time.monotonic()
while time.monotonic() < began + 1.5:
    subprocess.run(["true"])
for child in children:
    os.waitpid(child, 0)
print("fine")
"""


def test_what_processes_share_counts_once(sandbox: Box) -> None:
    """As after a fork; and a child that is about to become another program has no memory of its own."""
    ended = by_python(sandbox, SHARING, memory_bytes=HEAVY_BYTES)
    assert (ended.end, ended.stdout.head) == (Exited(0), b"fine\n")


# ---- programs that somebody may want


PROGRAMS = {
    "multiprocessing": """
import multiprocessing
from multiprocessing import shared_memory
if __name__ == "__main__":
    for how in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(how).Pool(2) as pool:
            assert pool.map(abs, (-1, -2)) == [1, 2]
    with multiprocessing.Manager() as manager:
        assert dict(manager.dict(a=1)) == {"a": 1}
    one = shared_memory.SharedMemory(create=True, size=65536)
    one.close()
    one.unlink()
    assert multiprocessing.Value("i", 3).value == 3
""",
    "asyncio": """
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
    assert await process.communicate() == (b"hi\\n", None)
    server = await asyncio.start_unix_server(lambda _, writer: writer.close(), "socket")
    reader, _ = await asyncio.open_unix_connection("socket")
    assert await reader.read() == b""
asyncio.run(main())
""",
    "files": """
import filecmp, mmap, shutil, sqlite3, sys
shutil.copyfile(sys.executable, "copy")
assert filecmp.cmp(sys.executable, "copy", shallow=False)
with open("copy", "r+b") as file, mmap.mmap(file.fileno(), 4096) as mapped:
    mapped[0] = 1
mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)[0] = 1
with sqlite3.connect("records") as records:
    records.execute("pragma journal_mode = wal")
    records.execute("create table numbers (number)")
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_python_do_what_they_do_elsewhere(sandbox: Box, name: str) -> None:
    ended = by_python(sandbox, PROGRAMS[name], timeout_s=60)
    assert (ended.end, ended.stdout.head) == (Exited(0), b"")


def test_programs_of_a_system_do_what_they_do_elsewhere(sandbox: Box) -> None:
    """Pipelines, sorting with files beside, following a file without being told of its changes, any name."""
    line = (
        "set -e; seq 1 100000 | sort -R -S 512K | sort -n -S 512K | tail -n 1; cp /bin/sh copy; cmp /bin/sh copy;"
        ": > log; (sleep 0.3; echo grown >> log) & timeout 20 tail -n +1 -s 0.1 -f log 2>&1 | grep -m 1 grown;"
        "if command -v git > /dev/null; then git init -q repository; cd repository; echo 1 > file; git add file;"
        "git -c user.name=n -c user.email=e commit -q -m first; git clone -q . ../clone; git log --format=%s;"
        "else echo first; fi; cd ..; cp /bin/sleep $(printf '\\377'); ./$(printf '\\377') 0.5"
    )
    ended = sandbox.run(f"exec 2>&1; {line}", timeout_s=60)
    assert (ended.end, ended.stdout.head) == (Exited(0), b"100000\ngrown\nfirst\n")


def test_files_in_memory_are_counted(tmp_path: Path) -> None:
    """bubblewrap has no bound for their number."""
    assert box(Rung.NAMESPACES, tmp_path).said("stat -f -c %c /tmp /dev/shm").split() == ["16384"] * 2


def test_it_has_no_terminal_and_no_input(sandbox: Box) -> None:
    began = time.monotonic()
    assert sandbox.said("cat; read x; sh -c 'read x </dev/tty' 2>/dev/null; echo rc=$?") != "rc=0\n"
    assert time.monotonic() - began < 5


# ---- by somebody else


@pytest.mark.full
@NEEDS_ROOT
def test_all_of_this_by_a_user_who_is_not_root() -> None:
    again_by_nobody(__file__)
