"""Secrets are planted wherever a system meets them, everything fails that can, and then all that anybody may see is
searched for them.
"""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from celery import Celery

from orchestrator.cli.command import run
from orchestrator.dispatch import send_submission
from tests.support.leaky import CODEWORD, DEPOT, RESULT
from tests.support.ledgers import databases
from tests.support.models import KEY, Says, model_server
from tests.support.postgres import PASSWORD, Postgres
from tests.support.receiver import SECRET
from tests.support.scraping import probed, scraped, url_of
from tests.support.servers import Server, running_server
from tests.support.system import System, plan_text, running_system, step
from tests.support.task_events import listening_to
from tests.support.waiting import eventually
from workers.cli import mandor

pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]
NAMED = "named-field-of-a-plan-05"
ROLES = ("steps", "control", "planner", "supervise", "exporter")
PLACES = ("logs", "pages", "events", "letters", "bells", "answers", "errors", "arguments", "inspected")
PROMPTED = ("store", "ledger", "model", "webhook", "registered", "variable", "result")
OURS = ("store", "ledger", "model", "webhook", "variable")  # which no action puts into its result
ABOUT_RUN = (("run", "show"), ("run", "events"), ("run", "why"), ("run", "result"), ("plan", "show"), ("plan", "graph"))
ABOUT_ALL = (
    *(("config", "show"), ("config", "check"), ("config", "policy"), ("doctor",), ("run", "list"), ("dlq", "list")),
    *(("health", "--role", "steps"), ("health", "--role", "exporter"), ("actions", "list"), ("actions", "check")),
)
PEEK = "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; true"


@dataclass(frozen=True)
class Leaked:
    """What was planted, and what is to be searched, by place."""

    secrets: dict[str, str]
    places: dict[str, list[str]] = field(default_factory=dict)

    def found(self, place: str, kinds: tuple[str, ...] = ()) -> set[tuple[str, str]]:
        """Kinds of secrets, each with the beginning of a text that has one."""
        return {
            (kind, text[max(0, at - 100) : at])
            for text in self.places[place]
            for kind, secret in self.secrets.items()
            if (not kinds or kind in kinds) and (at := text.find(secret)) >= 0
        }


@pytest.fixture(scope="module")
def leaked(postgres: Postgres, server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leaked]:
    folder = tmp_path_factory.mktemp("secrets")
    with (
        databases(postgres) as ledgers,
        running_server(folder / "server", server_kind) as server,
        model_server("openai", Says()) as model,
    ):
        made = Leaked(
            {
                "store": urlsplit(server.url).password or "",
                "ledger": PASSWORD,
                "model": KEY,
                "webhook": SECRET.removeprefix("whsec_"),
                "registered": "a-word-that-was-registered-03",
                "variable": "a-variable-of-a-worker-04",
                "named": NAMED,
                "result": RESULT,
            }
        )
        assert all(made.secrets.values())
        given = {"llm_provider": "openai", "llm_model": "m", "llm_base_url": model.url, "llm_api_key": KEY}
        given["webhook_secrets"] = SECRET
        named = {"actions": "tests.support.business,tests.support.leaky", "backoff_s": "0.1", "backoff_max_s": "0.1"}
        with running_system(
            server.url, folder, ledger_url=ledgers.made(), planner_attempts="2", **given, **named
        ) as system:
            system.processes.env.update({CODEWORD: made.secrets["registered"], DEPOT: made.secrets["variable"]})
            with system.installed.in_force(), all_events(system.installed.app) as events:
                start(system)
                fails(system, made, model.script)
                made.places.update(seen(system, server), prompts=model.prompts(), events=events)
                made.places.update({name: [(folder / name).read_text()] for name in (SUBPROCESS, "dumpable")})
                made.places["given"] = [*system.processes.env.values()]
                yield made
        system.installed.ledger.close()


SUBPROCESS = "environ-subprocess"


def start(system: System) -> None:
    system.start_control()
    system.processes.python("exporter", "-m", "workers.cli", "exporter", ready="service.ready")
    system.start_steps()


def fails(system: System, made: Leaked, script: list[Any]) -> None:
    """Everything that can quote a secret does."""
    asked = step("model.ask", question="what is it?", data={"$result": "s0", "path": "/note"})
    script[:] = [Says("fine")]
    leak = step("test.leak", password=NAMED)
    peek = step("run_command", command=PEEK)
    good = system.submit(leak, asked, step("test.environ"), peek, context={"password": NAMED})
    assert system.wait(good).status == "succeeded"
    runs = [
        system.submit(step("test.leak", password=NAMED, how="raise")),
        system.submit(leak, step("test.leak", password=NAMED, how="give_up"), policy={"on_failure": "compensate"}),
        system.submit(step("test.leak", password=NAMED, secret_level=NAMED)),
        system.submit(leak, step("test.leak", password=NAMED, secret_level={"$result": "s0", "path": "/api_key"})),
        system.send({"planner": "test.leak", "context": {"token": NAMED}}),
    ]
    for run_id in runs:
        assert system.wait(run_id).status in {"failed", "compensation_failed", "dead_lettered"}
    plans(system, made, script)
    is_refused(system)


def plans(system: System, made: Leaked, script: list[Any]) -> None:
    """A model that is told secrets answers with others, three times over what the door refuses."""
    told = made.secrets["registered"], made.secrets["store"], made.secrets["ledger"]
    bad = plan_text(step("test.leak", password=NAMED, secret_level=NAMED), step("test.echo", value=told[0]))
    script[:] = [Says(bad)]
    context = {"said": list(told)}
    run_id = system.send({"planner": "llm", "goal": f"log in with {told}", "context": context})
    assert system.wait(run_id, timeout_s=120).status == "dead_lettered"  # the model's library is loaded for it


def is_refused(system: System) -> None:
    """A submission and a message that nobody can read."""
    app, url = system.installed.app, system.installed.settings.redis_url
    wrong = {"planner": "llm", "apiKey": NAMED, "context": {"password": NAMED, "url": url}, "deadline_s": "soon"}
    refused = send_submission(app, wrong, str(uuid4()))
    with pytest.raises(Exception, match="apiKey"):
        refused.get(timeout=20, disable_sync_subtasks=False)
    fields = {"password": NAMED, "url": url}
    app.send_task("no.such.task", [fields], fields, queue=system.installed.queue("steps"), ignore_result=True)
    kinds = {"submission", "message", "plan", "undo"}
    letters = system.installed.ledger.letters
    eventually(lambda: {letter.kind.value for letter in letters(100)} >= kinds, what="letters of all kinds")


def seen(system: System, server: Server) -> dict[str, list[str]]:
    """All that anybody may see."""
    installed, home = system.installed, system.installed.settings.home
    views = [system.view(row.run_id) for row in installed.ledger.listed(100)]
    urls = [url_of(home, role) for role in ROLES]
    client: Any = server.client
    results = client.mget(*client.keys("celery-task-meta-*"))
    return {
        "logs": system.processes.lines(),
        "pages": [str(page) for url in urls for page in (scraped(url), probed(url, "/health"))],
        "letters": [letter.model_dump_json() for letter in installed.ledger.letters(100)],
        "bells": [raw.decode() for raw in client.lrange(installed.queue("dlq"), 0, -1)],
        "answers": [raw.decode() for raw in results if raw],
        "errors": [
            json.dumps([step.error.model_dump() if step.error else None for step in view.steps]) + str(view.reason)
            for view in views
        ],
        "results": [json.dumps(step.result) for view in views for step in view.steps if step.result],
        "commands": [*printed(system, [view.run_id for view in views])],
        "inspected": [json.dumps(told, default=str) for told in inspected(installed.app)],
        "arguments": [
            path.read_text(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline") if of_us(path, home)
        ],
    }


def printed(system: System, run_ids: list[str]) -> Iterator[str]:
    """What every command that only reads says, to people and to programs."""
    letters = [letter.id for letter in system.installed.ledger.letters(100)]
    about = [(*command, run_id) for command in ABOUT_RUN for run_id in run_ids]
    for command in (*ABOUT_ALL, *about, *(("dlq", "show", letter) for letter in letters)):
        for more in ((), ("--json",)):
            with redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
                run(mandor, (*command, *more))
            yield out.getvalue()


def inspected(app: Celery) -> list[Any]:
    """What workers say of themselves when Celery's own command line asks."""
    asked = app.control.inspect(timeout=5)
    return [asked.conf(with_defaults=True), asked.stats(), asked.report(), asked.registered(), asked.query_task("x")]


def of_us(path: Path, home: Path) -> bool:
    """Whether it is a process of this system."""
    with suppress(OSError):
        return str(home).encode() in path.with_name("environ").read_bytes()
    return False


@contextmanager
def all_events(app: Celery) -> Iterator[list[str]]:
    """Everything that Celery's workers tell, as Flower hears it."""
    heard: list[str] = []
    with listening_to(app, "*", lambda event: heard.append(json.dumps(event))):
        yield heard


@pytest.mark.parametrize("place", PLACES)
def test_nobody_sees_a_secret(leaked: Leaked, place: str) -> None:
    assert leaked.places[place]
    assert leaked.found(place) == set()


def test_no_model_is_told_one(leaked: Leaked) -> None:
    """What a plan's own fields are called, its model has called them."""
    assert len(leaked.places["prompts"]) == 4
    assert all("***" in prompt for prompt in leaked.places["prompts"])
    assert leaked.found("prompts", PROMPTED) == set()


def test_no_command_prints_one(leaked: Leaked) -> None:
    """What a plan and its results hold is shown to whoever may ask for them."""
    assert leaked.found("commands", OURS) == set()
    assert {kind for kind, _ in leaked.found("commands")} == {"registered", "named", "result"}


def test_no_result_has_one_that_its_action_did_not_put_there(leaked: Leaked) -> None:
    """A command's environment, and all that it sees of processes, is among them."""
    assert any("HOME=/workspace" in text for text in leaked.places["results"])
    assert leaked.found("results", OURS) == set()


def test_the_search_finds_what_is_there(leaked: Leaked) -> None:
    assert {kind for kind, _ in leaked.found("given")} == {*OURS, "registered"}
    events, logs = "\n".join(leaked.places["events"]), "\n".join(leaked.places["logs"])
    assert "task-failed" in events
    assert logs.count("***") > 100


def test_nobody_but_root_can_look_into_a_worker(leaked: Leaked) -> None:
    """Which was started with all of them."""
    assert leaked.places["dumpable"] == ["0"]


def test_a_process_that_a_step_starts_has_none_of_ours(leaked: Leaked) -> None:
    """Variables of the user's own are for the user's actions to pass on or not."""
    assert {kind for kind, _ in leaked.found(SUBPROCESS)} == {"registered", "variable"}
