import io
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog
from pydantic import SecretStr

from orchestrator.settings import Settings
from orchestrator.telemetry import events, logs, text


@pytest.fixture(autouse=True)
def process_logging() -> Iterator[None]:
    """Logging is a process's own: put back what the other tests had."""
    root = logging.getLogger()
    handlers, level, listener = root.handlers[:], root.level, logs._listener
    yield
    root.handlers[:], root.level = handlers, level
    for name in logs._CHATTY:
        logging.getLogger(name).setLevel(logging.NOTSET)
    logs._listener = listener
    structlog.reset_defaults()


class Stream(io.StringIO):
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def stream() -> Stream:
    out = Stream()
    logs.configure(Settings(log_format="json"), stream=out)
    return out


def test_a_line_of_a_run_carries_all_ten_identity_fields(stream: Stream) -> None:
    with logs.identity(run_id="r", step_id="s", state_version=3):
        logs.emit(events.JobStart(action="a", effect="pure", attempt=1, fence=2))
    (line,) = stream.lines()
    assert set(logs.IDENTITY) <= set(line)
    assert len(logs.IDENTITY) == 10
    assert (line["run_id"], line["step_id"], line["state_version"], line["lock_key"]) == ("r", "s", 3, None)
    assert (line["event"], line["level"], line["attempt"], line["fence"]) == ("job.start", "info", 1, 2)
    assert line["timestamp"].endswith("Z")


def test_facts_loggers_and_libraries_say_what_they_say_in_the_same_way(stream: Stream) -> None:
    with logs.identity(run_id="r"):
        logs.emit(events.ServiceRefused("config", "redis://:hunter2@host is away", None))
        logs.logger("mandor").critical(
            "service.refused", kind="config", message="redis://:hunter2@host is away", hint=None
        )
        logging.getLogger("mandor").critical("service.refused")
    fact, logger, library = stream.lines()
    moments = [line.pop("timestamp") for line in (fact, logger, library)]
    assert fact == logger == {**library, "kind": "config", "message": "redis://:***@host is away", "hint": None}
    assert [len(moment) for moment in moments] == [len("2026-02-01T09:30:00.250000Z")] * 3
    began = datetime.fromisoformat(moments[0])
    assert abs((datetime.now(UTC) - began).total_seconds()) < 60
    assert all(line.index('"timestamp"') < line.index('"run_id"') for line in stream.getvalue().splitlines())


def test_a_child_names_itself(stream: Stream) -> None:
    logs.emit(events.LeaseLost(1))
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        logs.emit(events.LeaseLost(2))
        os.write(tell, str(stream.lines()[-1]["pid"]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert (stream.lines()[0]["pid"], int(os.read(hear, 20))) == (os.getpid(), child)
    os.close(hear)
    os.close(tell)


def test_library_lines_get_the_same_format_and_identity(stream: Stream) -> None:
    with logs.identity(run_id="r"):
        logging.getLogger("celery.worker").warning("lost %s", "connection")
    (line,) = stream.lines()
    assert (line["event"], line["logger"], line["run_id"]) == ("lost connection", "celery.worker", "r")


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, SystemExit, Interrupted])
def test_the_identity_ends_with_its_block_whatever_its_end(stream: Stream, error: type[BaseException] | None) -> None:
    with pytest.raises(error) if error else nullcontext(), logs.identity(run_id="r"):
        logs.bind(policy_hash="p")
        with logs.identity(step_id="s"):
            if error:
                raise error
    logs.emit(events.RunSettled("succeeded", ""))
    (line,) = stream.lines()
    assert not set(logs.IDENTITY) & set(line)
    assert {"service", "host", "pid"} <= set(line)


def test_an_inner_block_adds_and_gives_back(stream: Stream) -> None:
    with logs.identity(run_id="r", state_version=1):
        with logs.identity(step_id="s", state_version=2):
            logs.emit(events.EffectOpened(1))
        logs.emit(events.EffectOpened(2))
    inner, outer = stream.lines()
    assert (inner["run_id"], inner["step_id"], inner["state_version"]) == ("r", "s", 2)
    assert (outer["run_id"], outer["step_id"], outer["state_version"]) == ("r", None, 1)


def test_what_is_bound_outside_of_a_block_would_stay_and_is_refused() -> None:
    with pytest.raises(RuntimeError, match="identity"):
        logs.bind(run_id="r")


def test_an_unknown_identity_field_is_refused() -> None:
    with pytest.raises(TypeError, match="runid"), logs.identity(runid="r"):  # type: ignore[call-arg]
        pass


def test_a_thread_speaks_for_nobody_until_it_is_told_for_whom(stream: Stream) -> None:
    def work(identity: logs.Identity) -> None:
        logs.emit(events.LeaseLost(1))
        with logs.identity(**identity):
            logs.emit(events.LeaseLost(2))

    with logs.identity(run_id="r"):
        thread = threading.Thread(target=work, args=(logs.snapshot(),))
        thread.start()
        thread.join()
    first, second = stream.lines()
    assert "run_id" not in first
    assert second["run_id"] == "r"


def test_no_value_can_forge_a_line_or_show_a_secret(stream: Stream) -> None:
    logging.getLogger("x").error('boom\n{"event":"forged"}\x1b[2J redis://:hunter2@host/0')
    logs.logger("user").info("note", api_key="hunter2", nested={"password": "hunter2"})
    text = stream.getvalue()
    assert len(text.splitlines()) == 2
    assert "hunter2" not in text
    assert "\x1b" not in text


def test_secrets_of_the_settings_and_registered_ones_are_hidden_wherever_they_stand() -> None:
    out = Stream()
    given = Settings(
        log_format="json",
        redis_url="redis://:store%2Bpassword@host/0",
        ledger_url="postgresql://me:ledger-password@db/x",
        llm_api_key=SecretStr("key-of-the-model"),
    )
    logs.configure(given, stream=out)
    text.hide("registered by hand")
    secrets = ("store%2Bpassword", "store+password", "ledger-password", "key-of-the-model", "registered by hand")
    for secret in secrets:
        logs.logger("user").info(f"it is {secret}", nested=[{"plain": f"<{secret}>"}])
        logging.getLogger("library").error("cannot log in with %s", secret)
    assert len(out.lines()) == 2 * len(secrets)
    assert [secret for secret in secrets if secret in out.getvalue()] == []


def test_a_password_that_is_its_users_name_is_hidden_in_its_url_only() -> None:
    out = Stream()
    logs.configure(Settings(log_format="json", ledger_url="postgresql://postgres:postgres@db/x"), stream=out)
    logs.logger("user").info("postgres at postgresql://postgres:postgres@db/x")
    assert out.lines()[0]["event"] == "postgres at postgresql://postgres:***@db/x"


def test_a_signal_that_ends_a_task_in_the_middle_of_a_line_leaves_no_identity(stream: Stream) -> None:
    """As in a worker's main process, whose handlers run wherever it is: its own next line is about nobody."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(3)

    def work() -> None:
        with logs.identity(run_id="r"):
            logs.bind(step_id="s")
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(1)

    before = signal.signal(signal.SIGUSR1, end)
    try:
        with pytest.raises(SystemExit):
            work()
    finally:
        signal.signal(signal.SIGUSR1, before)
    logs.emit(events.LeaseLost(1))
    assert [name for name in logs.IDENTITY if name in stream.lines()[-1]] == []


def test_configured_names_are_hidden_too() -> None:
    out = Stream()
    logs.configure(Settings(log_format="json", log_redact="iban, Card"), stream=out)
    logs.logger("user").info("paid", iban="DE00", card="4242", amount=3)
    (line,) = out.lines()
    assert (line["iban"], line["card"], line["amount"]) == ("***", "***", 3)


def test_the_human_format_is_one_escaped_line() -> None:
    out = Stream()
    logs.configure(Settings(log_format="human"), stream=out)
    with logs.identity(run_id="r", request_id="q"):
        logs.logger("user").warning("odd\nname", value="a\x1b[31m b", password="hunter2")
    (line,) = out.getvalue().splitlines()
    assert "warning  odd\\nname" in line
    assert "run_id=r" in line
    assert "request_id" not in line
    assert "\x1b" not in line
    assert "hunter2" not in line


def test_a_traceback_is_shown_below_its_line() -> None:
    out = Stream()
    logs.configure(Settings(log_format="human"), stream=out)
    try:
        raise ValueError("bad\x1b[2J")
    except ValueError:
        logging.getLogger("x").exception("failed")
    head, *traceback = out.getvalue().splitlines()
    assert head.endswith("failed")
    assert "ValueError: bad\\x1b[2J" in traceback[-1]


def test_a_pipe_gets_json_by_itself() -> None:
    out = Stream()
    logs.configure(Settings(log_format="auto"), stream=out)
    logs.emit(events.RunSettled("succeeded", ""))
    assert out.lines()[0]["status"] == "succeeded"


def test_the_level_is_respected_and_celery_does_not_tell_of_each_task_twice(stream: Stream) -> None:
    logs.emit(events.Published(3))
    logging.getLogger("celery.app.trace").info("Task succeeded: {'secret': 'result'}")
    logging.getLogger("celery.worker.strategy").info("Task received")
    assert stream.lines() == []


def test_a_process_that_did_not_configure_logging_keeps_its_own(caplog: pytest.LogCaptureFixture) -> None:
    logs._listener = logs._to_library
    with caplog.at_level(logging.INFO, logger="mandor"), logs.identity(run_id="r"):
        logs.emit(events.RunAccepted(created=True))
    (record,) = caplog.records
    assert (record.name, record.getMessage()) == ("mandor", "run.accepted  run_id=r created=true")


def test_every_fact_has_a_name_of_its_own() -> None:
    public = [value for value in vars(events).values() if isinstance(value, type)]
    facts = [kind for kind in public if issubclass(kind, events.Occurrence) and kind is not events.Occurrence]
    names = [fact.event for fact in facts]
    assert len(names) == len(set(names)) > 20
    assert all("." in name for name in names)


def test_where_names_the_place_and_nothing_of_the_data() -> None:
    with pytest.raises(ValueError, match="property name") as caught:
        json.loads("{secret")
    place = events.where(caught.value)
    assert place is not None
    assert place.startswith("decoder.py:")
    assert "secret" not in place
