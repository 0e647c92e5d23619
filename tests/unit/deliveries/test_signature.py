"""Callbacks are signed as Standard Webhooks says."""

import base64

import pytest
from pydantic import SecretStr

from orchestrator.deliveries import signature
from orchestrator.errors import ConfigError
from orchestrator.settings import Settings, read_settings
from orchestrator.telemetry.text import without_secrets
from tests.support.installation import environment
from tests.support.receiver import OLD_SECRET, SECRET, Received, is_signed


def test_the_published_vector() -> None:
    keys = signature.read_keys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    made = signature.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, '{"test": 2432232314}', keys)
    assert made == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_while_a_secret_changes_both_sign() -> None:
    made = signature.headers("msg_1", 1, "{}", signature.read_keys(f"{SECRET} {OLD_SECRET}"))
    one = Received("/", made, "{}")
    assert len(made["webhook-signature"].split(" ")) == 2
    assert is_signed(one, SECRET)
    assert is_signed(one, OLD_SECRET)
    assert not is_signed(Received("/", made, "{ }"))


@pytest.mark.parametrize(
    "wrong",
    [
        "whsec_",
        "whsec_c2hvcnQ=",
        SECRET.removeprefix("whsec_"),
        "whsec_!!!",
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
        f"{SECRET} {OLD_SECRET} {SECRET}",
    ],
)
def test_what_cannot_sign_is_refused_by_its_setting_and_not_shown(wrong: str) -> None:
    with environment({"MANDOR_WEBHOOK_SECRETS": wrong}), pytest.raises(ConfigError) as caught:
        read_settings()
    assert caught.value.path == "MANDOR_WEBHOOK_SECRETS"
    assert all(part not in str(caught.value) for part in wrong.split() if len(part) > 6)


def test_a_secret_is_shown_nowhere() -> None:
    given = Settings(webhook_secrets=SecretStr(SECRET))
    assert SECRET not in repr(given)
    for shown in (SECRET, SECRET.removeprefix("whsec_")):
        assert SECRET.removeprefix("whsec_") not in without_secrets(f"it is {shown}")
