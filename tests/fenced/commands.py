"""Cases of commands: what they reach for, what they leave running, and what they take."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

from schemas.run import StepView
from tests.fenced.fleet import Scene, alive, command, how, plays, said
from tests.support.bait import MARK
from tests.support.scraping import granted_s
from tests.support.waiting import eventually

FAILED, DONE = "command_failed", "completed"
# of each command of a case, how it ends; what it reached for is what every case is held to
REACHING: Final = {
    "rc-01": (FAILED,),
    "rc-02": (FAILED,),
    "rc-03": (FAILED,) * 4,
    "rc-04": (FAILED,),
    "rc-06": (FAILED, DONE, FAILED),
    "rc-07": (FAILED,),
    "rc-32": (FAILED,),
    "rc-33": (FAILED,),
    "rc-34": (FAILED,),
    "rc-35": (FAILED,),
    "rc-46": (DONE,),
    "rc-47": (DONE,),
}
BY_PYTHON: Final = ("rc-04", "rc-32", "rc-33", "rc-34", "rc-35")
OURS: Final = {"HOME", "PATH", "LANG", "TMPDIR", "PWD", "OLDPWD"}
OF_THE_SANDBOX: Final = 6  # processes, at most
PROMPT_S: Final = 2.0  # after its time limit a command's step has ended


@plays(*REACHING)
def reach(scene: Scene) -> None:
    """rc-34: for a server with a task in its queue; rc-35: for a socket that anybody may write. Each failure names what
    fenced it in.
    """
    decoy = scene.fleet.decoy
    decoy.client.lpush(scene.name, "task")
    views = scene.each(REDIS_PORT=urlsplit(decoy.url).port)
    assert [how(view) for view in views] == [[one] for one in REACHING[scene.name]]
    errors = [one.error.message for view in views for one in view.steps if one.error]
    assert all(f"; on the rung {scene.fleet.rung}" in error for error in errors)
    if scene.name in BY_PYTHON:
        assert all("Error: " in said(view.steps[0]) for view in views), "Python did try"
    assert decoy.client.lrange(scene.name, 0, -1) == [b"task"]


# ---- secrets


@plays("rc-08", "rc-09")
def tell_the_environment(scene: Scene) -> None:
    told = "".join(said(view.steps[0]) for view in scene.each())
    assert set(re.findall(r"^(?:export )?([A-Z_]{3,})=", told, re.MULTILINE)) - {"IFS", "PPID", "OPTIND"} <= OURS
    assert "PATH=" in told, "it did look"


@plays("rc-11")
def read_secret_files(scene: Scene) -> None:
    """And all that lies around the workspace, the ledger included."""
    (view,) = scene.each()
    assert how(view) == [DONE]
    assert said(view.steps[0]) == ""
    scene.said("cat ../run.json ../../../ledger.db ../../workspace.key /proc/*/environ /proc/*/cmdline; true")


@plays("rc-12")
def look_into_who_started_it(scene: Scene) -> None:
    """The shell beside it is its own, so it goes without."""
    (line,) = (one["params"]["command"] for one in scene.steps())
    view = scene.run(command(f"exec {line}"))
    assert how(view) == [FAILED]
    assert "PermissionError" in said(view.steps[0])


@plays("rc-13")
def list_descriptors(scene: Scene) -> None:
    (view,) = scene.each()
    listed = dict(re.findall(r"(\d+) -> (\S+)", said(view.steps[0])))
    assert set(listed) == {"0", "1", "2", "3"}
    assert listed["0"] == "/dev/null"
    assert all(listed[number].startswith("pipe:") for number in ("1", "2"))


@plays("rc-37")
def look_at_others(scene: Scene) -> None:
    scene.tells = True  # the plan of the other does
    other = scene.run({"action": "create_file", "params": {"path": "secret.txt", "content": MARK}}, session_id="other")
    (view,) = scene.each()
    assert how(view) == [DONE]
    assert MARK not in said(view.steps[0])
    assert not {scene.tree(one).parent.name for one in (view, other)} & set(said(view.steps[0]).split())
    scene.said(f"! grep {scene.tree(other).parent.name} /proc/self/mountinfo")  # its own is told there


@plays("rc-38")
def leave_marks(scene: Scene) -> None:
    """The same once more, for another session, when the first has ended."""
    for session_id in ("one", "two"):
        (line,) = (one["params"]["command"] for one in scene.steps())
        assert "me\n" not in scene_said(scene, line, session_id)


def scene_said(scene: Scene, line: str, session_id: str) -> str:
    return said(scene.run(command(f"{line} || true"), session_id=session_id).steps[0])


# ---- those outside


@plays("rc-39")
def signal_others(scene: Scene) -> None:
    (view,) = scene.each()
    told = said(view.steps[0])
    assert not re.search("REACHABLE|HIT", told)
    assert int(view.steps[0].result["stdout_head"]) <= OF_THE_SANDBOX
    assert scene.fleet.bait.decoy.poll() is None


@plays("rc-40")
def write_anywhere(scene: Scene) -> None:
    (view,) = scene.each()
    assert how(view) == [DONE]
    assert said(view.steps[0]).count("cannot touch") >= 3
    assert [path.name for path in scene.tree(view).iterdir()] == ["x"]


@plays("rc-41")
def meddle_with_policy(scene: Scene) -> None:
    before = scene.run(command("true"))
    view = scene.whole()
    assert how(view) == [DONE, FAILED]
    after = scene.run(command("env"))
    assert before.policy_hash == view.policy_hash == after.policy_hash
    assert "AGENT_POLICY" not in said(after.steps[0])


@plays("rc-43")
def become_root(scene: Scene) -> None:
    (view,) = scene.each()
    assert how(view) == [DONE]
    assert "uid=0" not in said(view.steps[0])
    assert list(scene.tree(view).iterdir()) == [], "no device, and nothing was mounted there"


@plays("rc-44")
def mount_again(scene: Scene) -> None:
    """What a sandbox shows read only lies where the commands' user may write it."""
    (view,) = scene.each()
    assert how(view) == [DONE]
    inside = scene.fleet.bait.folder / "inside"
    assert inside.stat().st_uid == scene.fleet.bait.canary.stat().st_uid
    assert not (inside / ".pwned").exists()


@plays("rc-45")
def nest(scene: Scene) -> None:
    (view,) = scene.each()
    assert how(view) == [DONE]
    assert view.steps[0].result["stdout_bytes"] == 0


@plays("rc-48")
def raise_limits(scene: Scene) -> None:
    (line,) = (one["params"]["command"] for one in scene.steps())
    told = scene.said(f"ulimit -a; ulimit -Ha; echo ---; {{ {line}; }} 2>/dev/null; echo ---; ulimit -a; ulimit -Ha")
    before, meanwhile, after = told.split("---\n")
    assert (meanwhile, after) == ("", before)
    assert re.search(r"process\S*\s.*64", before)


@plays("rc-49")
def mislead_the_loader(scene: Scene) -> None:
    """What its own environment does stays inside; the next command has a new one."""
    view = scene.run(*scene.steps(), command("env", "next"))
    assert how(view) == [DONE] * 3
    assert (scene.tree(view) / "evil.sh").exists()
    assert set(re.findall(r"^([A-Z_]+)=", said(view.steps[2]), re.MULTILINE)) <= OURS


@plays("rc-51")
def remove_its_workspace(scene: Scene) -> None:
    """By its name outside, and by that inside: only what lies in it goes, and it serves on."""
    other = scene.run({"action": "create_file", "params": {"path": "kept.txt", "content": "kept"}})
    outside = scene.tree(other)
    for seen_as in (outside, "/workspace"):
        view = scene.whole(WS=seen_as)
        assert how(view) == [DONE] * 2
        assert said(view.steps[0]) == "gone\n"
        assert [path.name for path in scene.tree(view).iterdir()] == ["x.txt"]
    assert (outside / "kept.txt").read_text() == "kept"


@plays("rc-52")
def end_at_once(scene: Scene) -> None:
    """Whom a worker kills is still its own: what each signal was sent to is looked at when all is over."""
    views = [scene.whole() for _ in range(3)]
    assert [how(view) for view in views] == [[DONE] * 2] * 3


# ---- what lives on, and what does not want to end


@plays("rc-14")
def be_a_daemon(scene: Scene) -> None:
    """Whose command ends once it has beaten."""
    view = scene.run(command(f"{line_of(scene)}\nuntil [ -e beat ]; do sleep 0.05; done"))
    assert how(view) == [DONE]
    assert not alive("python3", "-c", line_of(scene).partition('"')[2].removesuffix('"'))
    beat = scene.tree(view) / "beat"
    before = beat.read_text()
    scene.said("sleep 1.2")  # it would have beaten twice
    assert beat.read_text() == before


def line_of(scene: Scene) -> str:
    line: str = scene.steps()[0]["params"]["command"]
    return line


@plays("rc-15", sleepers=("45", "46"))
@plays("rc-16", sleepers=("40",))
def leave_sleepers(scene: Scene, sleepers: tuple[str, ...]) -> None:
    (view,) = scene.each()
    assert how(view) == [DONE]
    assert [alive("sleep", seconds) for seconds in sleepers] == [[] for _ in sleepers]
    assert said(view.steps[0]) == ("hi\n" if scene.name == "rc-16" else "")
    assert view.steps[0].result["duration_ms"] < 1000 * int(sleepers[0])


@plays("rc-17", "rc-18", "rc-22")
def outlast_its_time(scene: Scene) -> None:
    """rc-17 is deaf, rc-18 sleeps, rc-22 burns every core; in one attempt, so that its lease did not lapse."""
    (view,) = scene.each()
    assert how(view) == ["timed_out"]
    assert (view.steps[0].status, view.steps[0].attempt) == ("in_doubt", 1)
    limit_s = scene.steps()[0]["params"]["timeout_ms"] / 1000
    assert limit_s <= lasted_s(view.steps[0]) <= granted_s(limit_s + PROMPT_S)
    left = {
        "rc-17": ("/bin/sh", "-c", line_of(scene)),
        "rc-18": ("sleep", "600"),
        "rc-22": ("sh", "-c", "while :; do :; done"),
    }
    assert not alive(*left[scene.name])


def lasted_s(one: StepView) -> float:
    assert one.started_at is not None
    assert one.ended_at is not None
    return (one.ended_at - one.started_at) / 1000


@plays("rc-27")
def wait_for_input(scene: Scene) -> None:
    (view,) = scene.each()
    assert how(view) == [DONE], "and not at its time limit"
    assert said(view.steps[0]) == ""


@plays("rc-28")
def read_the_terminal(scene: Scene) -> None:
    """The worker has one."""
    (view,) = scene.each()
    assert how(view) == [DONE]
    assert re.search(r"rc=[1-9]", said(view.steps[0]))


@plays("rc-30")
def leave_zombies(scene: Scene) -> None:
    """That none is left of the worker's own is seen when all is over."""
    (view,) = scene.each()
    assert how(view) == [DONE]


# ---- too much


@plays("rc-20")
def fork_on_and_on(scene: Scene) -> None:
    """Another run has its turn meanwhile."""
    with ThreadPoolExecutor(1) as beside:
        fine = beside.submit(scene.said, "echo fine")
        (view,) = scene.each(policy={"command_processes": 64})
        assert fine.result() == "fine\n"
    assert how(view) == [DONE]
    assert 0 < int(said(view.steps[0])) <= 64
    eventually(lambda: not alive("python3", "-c", line_of(scene).partition('"')[2].removesuffix('"')))


@plays("rc-21")
def hog_memory(scene: Scene) -> None:
    (view,) = scene.each(policy={"command_memory_bytes": 512 << 20})
    assert how(view) == [FAILED]
    assert "MemoryError" in said(view.steps[0])


@plays("rc-23")
def flood(scene: Scene) -> None:
    """That it cost the worker no memory is seen when all is over."""
    (view,) = scene.each(policy={"command_output_bytes": 1 << 20})
    assert how(view) == ["command_flooded"]


@plays("rc-25")
def say_bytes(scene: Scene) -> None:
    (view,) = scene.each()
    assert how(view) == [DONE]
    assert view.steps[0].result["stdout_head"].endswith(" end")
    assert view.steps[0].result["stdout_bytes"] == len(b"\377\376\000\355\240\200 end")


@plays("rc-26")
def say_one_long_line(scene: Scene) -> None:
    (view,) = scene.each()
    result = view.steps[0].result
    assert result["stdout_bytes"] == 3_000_000
    assert set(result["stdout_head"] + result["stdout_tail"]) == {"a"}
    assert len(view.model_dump_json()) < 256 << 10


@plays("rc-31")
def be_too_long(scene: Scene) -> None:
    (view,) = scene.each()
    assert how(view) == ["command_too_long"]
    assert view.steps[0].status == "failed", "nothing was started, so there is no doubt"


@plays("cf-30")
def fill_with_files(scene: Scene) -> None:
    """Ended at the next look, and no file more is written afterwards."""
    view = scene.run(*scene.steps(), command("true", "next", ["s0"]), policy={"workspace_files": 1000})
    assert how(view)[0] == "workspace_full"
    assert view.steps[1].attempt == 0
    assert 1000 <= len(list(scene.tree(view).iterdir())) < 100_000
