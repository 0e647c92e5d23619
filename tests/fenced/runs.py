"""Cases of runs that would meet if they could: ids, sessions, policies, results, texts; and of what people read."""

import io
import json
import re
import threading
from contextlib import redirect_stderr, redirect_stdout
from typing import Final

from orchestrator.cli.command import run as run_mandor
from schemas.run import RunView
from tests.fenced.fleet import Scene, command, fresh_id, how, plays, said
from tests.support.bait import MARK
from tests.support.scraping import scraped
from tests.support.system import step
from workers.cli import mandor

FAILED, DONE = "command_failed", "completed"
SEPARATORS: Final = (":", "|", "/", "_", "-")
STAGE: Final = threading.Lock()  # what is printed goes to one place
ENOUGH: Final = 15  # steps of five hundred, to see whether a label grows with each
RAW: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")  # but for a line's end


# ---- ids, sessions, policies


@plays("iso-01")
def share_a_session(scene: Scene) -> None:
    """Two sorts of runs of one session at a time, in the same children: one may write files that the other may not."""
    content = "0123456789"
    files = [{**step("create_file", path=f"f{number}", content=content), "needs": []} for number in range(20)]
    free = scene.begin(*files, command("true", needs=[]), session_id="one")
    (line,) = scene.steps()
    strict = {"file_bytes": len(content) - 1, "command_processes": 4}
    begun = [scene.begin(files[0], policy=strict, session_id="one") for _ in range(10)]
    reaching = scene.begin(line, policy=strict, session_id="one")
    assert [how(scene.end(run_id)) for run_id in begun] == [["file_too_large"]] * len(begun)
    assert how(scene.end(reaching)) == [FAILED]
    view = scene.end(free)
    assert how(view) == [DONE] * 21
    assert {one.policy_hash for one in view.steps} == {view.policy_hash}


@plays("iso-02")
def join_to_the_same(scene: Scene) -> None:
    """Two names of session and step that are one where they are joined, for each sign that joins."""
    (ours,) = scene.steps()
    theirs = {**ours, "params": {"command": "echo B"}}
    begun = {}
    for sign in SEPARATORS:
        first = scene.begin(ours, session_id=f"a{sign}b", request_id="c")
        begun[first] = "A\n"
        begun[scene.begin(theirs, session_id="a", request_id=f"b{sign}c")] = "B\n"
    assert len(begun) == 2 * len(SEPARATORS)
    assert {run_id: said(scene.end(run_id).steps[0]) for run_id in begun} == begun


@plays("iso-03", session="theirs")
@plays("iso-04", session="ours")
def repeat_a_plan_id(scene: Scene, session: str) -> None:
    plan_id = fresh_id()
    before = scene.run(command("echo stored"), plan_id=plan_id, session_id=session)
    after = scene.run(*scene.steps(), plan_id=plan_id, session_id="ours")
    assert (before.plan_id, after.plan_id) == (plan_id, plan_id)
    told = [said(view.steps[0]) for view in (before, after)]
    assert told == ["stored\n", "mine\n" if scene.name == "iso-03" else "second\n"]


@plays("iso-06")
def look_like_default_ids(scene: Scene) -> None:
    view = scene.whole()
    assert [(one.id, said(one)) for one in view.steps] == [
        *(("s0", "a\n"), ("0", "b\n"), ("step-0", "c\n"), ("steps-0", "d\n"))
    ]
    assert len({one.step_token for one in view.steps}) == 4


@plays("iso-07")
def be_stale(scene: Scene) -> None:
    """A plan for the empty context, in a run that has another."""
    plan = {"plan_id": fresh_id(), "context_hash": "0" * 64, "steps": scene.steps()}
    run_id = scene.fleet.send(json.dumps(plan), context={"order": 7})
    assert [error["kind"] for error in scene.refusal(scene.end(run_id))] == ["context"]


@plays("iso-12")
def have_short_names(scene: Scene) -> None:
    """Whatever others have left by now, a run begins with an empty folder, named by more than eight letters."""
    (view,) = scene.each()
    assert (how(view), said(view.steps[0])) == ([DONE], "")
    names = scene.fleet.worker.workspaces()
    assert len(names) > 1
    assert all(len(name) >= 32 for name in names)


# ---- results, templates


@plays("iso-11")
def forge_a_result(scene: Scene) -> None:
    """The step that it speaks of fails all the same."""
    view = scene.run(*scene.steps(), command("false", "deploy", ["s0"]))
    assert how(view) == [DONE, FAILED]
    assert '"status":"succeeded","step":"deploy"' in said(view.steps[0])


@plays("tpl-01")
def splice(scene: Scene) -> None:
    view = scene.whole()
    assert how(view) == [DONE, FAILED], "the shell does not know such a name"
    assert said(view.steps[0]) == f"x; touch {scene.canary}/x"


@plays("tpl-04")
def say_a_plan(scene: Scene) -> None:
    """That no other run came of it is seen when all is over."""
    (view,) = scene.each()
    assert how(view) == [DONE]
    assert json.loads(said(view.steps[0]))["steps"] == []


@plays("pi-04")
def say_what_is_next(scene: Scene) -> None:
    """The next plan that wants what its policy has not is refused as any other."""
    (view,) = scene.each()
    assert how(view) == [DONE]
    next_one = command("cat /etc/passwd")
    assert scene.faults(next_one, policy={"actions": ["create_file"]}) == ["policy"]
    assert "root:" not in scene.said("cat /etc/passwd || true")


@plays("pi-01", "pi-03")
def be_invalid(scene: Scene) -> None:
    """A ready plan is not mended. Twenty faults at most are told, each shortened; pi-03 is too large as a whole."""
    (one,) = scene.steps()
    if scene.name == "pi-03":
        assert len(scene.turned_away(one)) < 200
        one["params"] = dict.fromkeys(one["params"], "v")
    view = scene.run(one)
    errors = scene.refusal(view)
    assert len(errors) == (20 if scene.name == "pi-03" else 1)
    assert len(json.dumps(errors)) < 8 << 10


# ---- what people read


@plays("log-01", "log-03")
def forge_a_line(scene: Scene) -> None:
    """A path that nobody could read is refused; what a command says is not, and shown by its escapes. That no line of
    the log begins with it is seen when all is over.
    """
    _, line = scene.steps()
    refused = scene.run(*scene.steps())
    assert "steps.0.params.path" in {error["path"] for error in scene.refusal(refused)}
    view = scene.run({**line, "needs": []})
    assert view.status == ("failed" if scene.name == "log-01" else "dead_lettered")
    assert_shown_by_escapes(scene, refused, view)
    if scene.name == "log-03":
        (letter,) = scene.letters(refused)
        assert "invoice\\u202efdp.sh" in unquoted(shown(scene, "dlq", "show", letter.id))


@plays("log-02")
def act_on_a_terminal(scene: Scene) -> None:
    (view,) = scene.each()
    assert how(view) == [DONE]
    assert "\x1b]0;pwn\x07" in said(view.steps[0])
    assert_shown_by_escapes(scene, view)
    assert "\\x1b]0;pwn\\x07" in unquoted(shown(scene, "run", "result", view.run_id))


def assert_shown_by_escapes(scene: Scene, *views: RunView) -> None:
    """Whatever a person asks about these runs."""
    for view in views:
        texts = [shown(scene, "run", what, view.run_id) for what in ("show", "events", "result", "why")]
        texts += [shown(scene, "plan", "show", view.run_id), shown(scene, "run", "list"), shown(scene, "dlq", "list")]
        texts += [shown(scene, "dlq", "show", letter.id) for letter in scene.letters(view)]
        assert all(texts)
        assert not [text for text in texts if RAW.search(text)]


def shown(scene: Scene, *arguments: str) -> str:
    """All that a command prints for people."""
    with STAGE, redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
        run_mandor(mandor, arguments)
    return out.getvalue()


def unquoted(text: str) -> str:
    """JSON within what is shown doubles a backslash, and spells a control character its own way."""
    return text.replace("\\\\", "\\").replace("\\u001b", "\\x1b").replace("\\u0007", "\\x07")


@plays("log-04")
def tell_a_secret(scene: Scene) -> None:
    """In results it may be; that no line of any process has it is seen when all is over."""
    scene.tells = True
    line, changed = scene.steps()
    changed["params"]["entity_id"] = fresh_id()
    view = scene.run(line, changed)
    assert how(view) == [DONE] * 2
    assert said(view.steps[0]) == f"tok={MARK}\n"
    words = scene.run(command(f"echo tok={MARK} >&2; exit 3"))
    assert MARK in said(words.steps[0])
    assert scene.faults(step("run_command", command="true", timeout_ms=f"soon {MARK}"))


@plays("met-02")
def be_a_label(scene: Scene) -> None:
    (view,) = scene.each()
    assert [error["path"] for error in scene.refusal(view)] == ["steps.0.params.path"]
    assert not [name for name in scraped(scene.fleet.worker.url) if "evil" in name]


def be_many(scene: Scene) -> None:
    """met-01, before there is anything else: one of its five hundred steps, then so many that a label would grow."""
    first, *others = ({**one, "needs": []} for one in scene.steps()[:ENOUGH])
    assert how(scene.run(first)) == [DONE]
    before = set(scraped(scene.fleet.worker.url))
    assert how(scene.run(*others)) == [DONE] * len(others)
    assert set(scraped(scene.fleet.worker.url)) == before
    assert not [name for name in before if re.search(r"s-\d|true #", name)]
