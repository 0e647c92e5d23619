"""What an exception means, and what of it is stored."""

import json

import pytest

from orchestrator.errors import LedgerUnavailable, StoreUnavailable
from orchestrator.settings import Settings
from workers.actions.commands import NoSandboxRung
from workers.failures import HandBack, UnknownAction, error_text, had_no_effect, hand_back, is_retryable
from workers.outcomes import NoEffect, PermanentError, Snooze, TimeUp, WorkerStopping
from workers.workspace import PathRefused


def told(error: BaseException, index: int = 3) -> dict[str, object]:
    fields: dict[str, object] = json.loads(error_text(error, index))
    return fields


def test_a_strangers_exception_is_its_type_and_its_message() -> None:
    assert told(ValueError("no such card")) == {
        "kind": "step_error",
        "message": "ValueError: no such card",
        "path": None,
    }


def test_our_own_keeps_its_kind_and_says_what_to_do() -> None:
    error = PermanentError("the card is closed", hint="ask for another")
    assert told(error) == {"kind": "permanent", "message": "the card is closed (ask for another)", "path": None}


def test_paths_are_in_plan_coordinates() -> None:
    assert told(PathRefused("a link stands in the path"))["path"] == "steps.3.params.path"
    assert told(PermanentError("no", path="result.total"))["path"] == "result.total"


def test_a_message_is_one_short_line_without_secrets() -> None:
    said = "line\nbreak \u202e redis://user:hunter2@host/0 " + "x" * 5000
    message = str(told(RuntimeError(said))["message"])
    assert "\n" not in message
    assert "\u202e" not in message
    assert "hunter2" not in message
    assert len(message.encode()) <= 1024


def test_an_exception_that_cannot_be_read_is_still_a_failure() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "could not be read" in str(told(Mute())["message"])


def test_a_time_limit_has_a_kind_of_its_own() -> None:
    assert told(TimeUp("too long"))["kind"] == "step_timeout"


def test_a_refused_command_is_final_and_had_no_effect() -> None:
    error = NoSandboxRung("no sandbox")
    assert told(error)["kind"] == "no_sandbox_rung"
    assert not is_retryable(error)
    assert had_no_effect(error)


@pytest.mark.parametrize("error", [ValueError("x"), NoEffect("x"), TimeUp("x"), SystemExit(1), StoreUnavailable("x")])
def test_what_is_not_called_permanent_may_be_tried_again(error: BaseException) -> None:
    assert is_retryable(error)
    assert hand_back(error, Settings()) is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Snooze(2), "snooze"),
        (WorkerStopping("x"), "worker_stopping"),
        (UnknownAction("x"), "unknown_action"),
        (LedgerUnavailable("x"), "ledger_away"),
    ],
)
def test_what_is_nobodys_failure_does_not_count(error: BaseException, reason: str) -> None:
    back = hand_back(error, Settings())
    assert isinstance(back, HandBack)
    assert back.reason == reason
    assert back.times > 0


def test_an_unknown_action_is_given_the_time_a_rollout_takes() -> None:
    back = hand_back(UnknownAction("x"), Settings(dispatch_deadline_s=77))
    assert back == HandBack("unknown_action", 2.0, 3, 77)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e9])
def test_a_snooze_is_a_time(seconds: float) -> None:
    with pytest.raises(ValueError, match="Snooze"):
        Snooze(seconds)
