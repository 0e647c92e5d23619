"""A POST to a real server: what is sent, and how little is waited for, read or followed."""

import socket
import ssl
import subprocess
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx2
import pytest

from orchestrator.deliveries.guard import read_allowed
from orchestrator.deliveries.post import Poster
from orchestrator.deliveries.schedule import Answer
from tests.support.installation import environment
from tests.support.receiver import Receiver, receiving

LOOPBACK = "127.0.0.0/8, hooks.test"
HEADERS = {"webhook-id": "msg_1"}
BODY = '{"type":"run.succeeded"}'


def post(receiver: Receiver, *replies: object, timeout_s: float = 5.0, path: str = "/hook?a=b%20c") -> Answer:
    receiver.replies.extend(replies)  # type: ignore[arg-type]
    return Poster(read_allowed(LOOPBACK), timeout_s).post(receiver.url(path), HEADERS, BODY)


def test_what_is_sent_arrives() -> None:
    with receiving() as receiver:
        assert post(receiver, 204) == Answer(204)
    (one,) = receiver.received
    assert (one.path, one.body, one.id) == ("/hook?a=b%20c", BODY, "msg_1")
    assert one.headers["content-type"] == "application/json"
    assert one.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert one.headers["user-agent"].startswith("mandor/")


def test_a_redirect_is_an_answer_and_not_followed() -> None:
    with receiving() as receiver:
        answer = post(receiver, (302, {"location": receiver.url("/elsewhere")}))
    assert (answer.status_code, answer.error, len(receiver.received)) == (302, "status", 1)


def test_what_the_server_asks_for_is_heard() -> None:
    with receiving() as receiver:
        assert post(receiver, (503, {"retry-after": "120"})).retry_after_s == 120


@pytest.mark.parametrize("asked", ["Mon, 01 Jan 2024 00:00:00 +9999999999999", "1e999", "soon"])
def test_a_time_that_nobody_can_read_is_none(asked: str) -> None:
    with receiving() as receiver:
        assert post(receiver, (503, {"retry-after": asked})) == Answer(503, "status")
        assert post(receiver, (200, {"retry-after": asked})) == Answer(200)


def test_of_what_was_taken_nothing_is_asked() -> None:
    with receiving() as receiver:
        assert post(receiver, (200, {"retry-after": "120"})) == Answer(200)


@pytest.mark.parametrize("wrong", [OverflowError, ValueError, RuntimeError])
def test_what_the_library_stumbles_over_is_a_broken_answer(wrong: type[Exception]) -> None:
    """None is known that does: it has its own errors for what is wrong with an answer."""

    def stumble(_: httpx2.Request) -> httpx2.Response:
        raise wrong("over this answer")

    poster = Poster(read_allowed(LOOPBACK), 5, transport=httpx2.MockTransport(stumble))
    assert poster.post("http://127.0.0.1:9/", HEADERS, BODY) == Answer(
        error="broken_answer", why=f"broken_answer: {wrong.__name__}"
    )


def endless(handler: BaseHTTPRequestHandler) -> None:
    """A gigabyte, if anybody reads it."""
    with suppress(OSError):
        handler.send_response(200)
        handler.send_header("content-length", str(1 << 30))
        handler.end_headers()
        for _ in range(1 << 14):
            handler.wfile.write(b"x" * (1 << 16))
    handler.close_connection = True


def test_a_gigabyte_is_not_read() -> None:
    """wh-05"""
    with receiving() as receiver:
        began = time.monotonic()
        assert post(receiver, endless) == Answer(200)
        assert time.monotonic() - began < 3


def test_silence_is_waited_for_so_long_and_no_longer() -> None:
    """wh-05"""
    with receiving() as receiver:
        began = time.monotonic()
        assert post(receiver, receiver.stay_silent, timeout_s=0.5).error == "timeout"
        assert time.monotonic() - began < 3


def test_a_server_that_drips_meets_the_same_limit() -> None:
    with receiving() as receiver:

        def drip(handler: BaseHTTPRequestHandler) -> None:
            with suppress(OSError):
                handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
                while not receiver.leaving.wait(0.05):
                    handler.wfile.write(b"x-more: x\r\n")

        began = time.monotonic()
        assert post(receiver, drip, timeout_s=0.5).error == "timeout"
        assert time.monotonic() - began < 3


def test_a_name_that_does_not_resolve_in_time_is_left() -> None:
    with receiving() as receiver:

        def slow(host: str, port: int) -> list[str]:
            receiver.leaving.wait()
            return []

        answer = Poster(read_allowed(LOOPBACK), 0.3, slow).post("https://hooks.test/", HEADERS, BODY)
        assert answer.error == "timeout"


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        answer = Poster(read_allowed(LOOPBACK), 5).post(url, HEADERS, BODY)
        assert (answer.error, "127.0.0.1" in str(answer)) == ("unreachable", True)


def test_no_such_name() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    assert Poster(read_allowed(LOOPBACK), 5, unknown).post("https://hooks.test/", HEADERS, BODY).error == "unresolved"


def test_what_is_no_http_is_told() -> None:
    with receiving() as receiver:
        assert post(receiver, lambda handler: handler.wfile.write(b"hello\r\n\r\n")).error == "broken_answer"


def test_the_second_address_is_tried_if_the_first_does_not_connect() -> None:
    with receiving() as receiver:
        addresses = ["127.0.0.2", "127.0.0.1"]
        url = receiver.url(host="hooks.test")
        answer = Poster(read_allowed(LOOPBACK), 5, lambda host, port: addresses).post(url, HEADERS, BODY)
    assert answer == Answer(204)
    assert receiver.received[0].headers["host"] == f"hooks.test:{receiver.port}"


def test_a_proxy_of_the_environment_is_not_asked() -> None:
    with receiving() as receiver, receiving() as proxy, environment({"http_proxy": proxy.url(""), "no_proxy": ""}):
        assert post(receiver) == Answer(204)
    assert proxy.received == []


# ---- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of hooks.test, with its key, signed by itself."""
    folder = tmp_path_factory.mktemp("certificate")
    made = folder / "both.pem"
    subject = ["-subj", "/CN=hooks.test", "-addext", "subjectAltName=DNS:hooks.test"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run(
        ["openssl", "req", "-x509", *key, *subject, "-keyout", made, "-out", folder / "certificate.pem"],
        check=True,
        capture_output=True,
    )
    made.write_text(made.read_text() + (folder / "certificate.pem").read_text())
    return made


def post_by_tls(certificate: Path, host: str, *, trusted: bool) -> tuple[Answer, Receiver]:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate)
    trust = ssl.create_default_context(cafile=str(certificate)) if trusted else None
    allowed = read_allowed("127.0.0.0/8")
    with receiving(served) as receiver:
        poster = Poster(allowed, 5, lambda host, port: ["127.0.0.1"], trust=trust)
        answer = poster.post(receiver.url(scheme="https", host=host), HEADERS, BODY)
    return answer, receiver


def test_the_certificate_must_be_of_the_name_not_of_the_address(certificate: Path) -> None:
    answer, receiver = post_by_tls(certificate, "hooks.test", trusted=True)
    assert answer == Answer(204)
    assert receiver.received[0].headers["host"] == f"hooks.test:{receiver.port}"
    answer, receiver = post_by_tls(certificate, "other.test", trusted=True)
    assert (answer.error, receiver.received) == ("tls", [])


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: Path) -> None:
    answer, receiver = post_by_tls(certificate, "hooks.test", trusted=False)
    assert (answer.error, receiver.received) == ("tls", [])


def test_no_log_has_the_url(caplog: pytest.LogCaptureFixture) -> None:
    with receiving() as receiver, caplog.at_level("DEBUG"):
        post(receiver, path="/hooks/as-good-as-a-password")
    assert "as-good-as-a-password" not in caplog.text
