"""Where callbacks may go: every form in which the inside of a network can be named, and none of them is reached."""

import re
from ipaddress import ip_address

import httpx2
import pytest
from pydantic import SecretStr

from orchestrator.deliveries import door
from orchestrator.deliveries.guard import is_public, parsed, read_allowed
from orchestrator.deliveries.post import Poster
from orchestrator.errors import ConfigError
from orchestrator.settings import Settings, read_settings
from schemas.callback import read_url
from schemas.issues import Located
from tests.support.hostile import corpus
from tests.support.installation import environment
from tests.support.receiver import SECRET

PUBLIC = ("93.184.216.34", "1.1.1.1", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822", "::ffff:1.1.1.1")
INSIDE = (
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("192.0.0.1", "192.0.0.9", "192.0.0.10"),
    *("192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1"),
    *("224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("::1", "::", "fe80::1", "fec0::1", "fc00::1", "fd12:3456::1", "ff02::1", "2001:db8::1", "3fff::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1"),
    *("2002:7f00:1::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "5f00::1", "4000::1"),
)


class Wire(httpx2.AsyncBaseTransport):
    """A network that carries nothing, and knows who was to be connected to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append((request.url.host, request.headers["host"], request.extensions["sni_hostname"]))
        return httpx2.Response(200)


class Names:
    """A resolver with an answer for each look-up; the last one stands."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def posted(url: str, names: Names, allowed: str = "") -> tuple[str | None, list[tuple[str, str, str]]]:
    """The error, and who was connected to."""
    wire = Wire()
    answer = Poster(read_allowed(allowed), 5, names, wire).post(url, {"webhook-id": "msg_1"}, "{}")
    return answer.error, wire.asked


@pytest.mark.parametrize("address", PUBLIC)
def test_the_internet_is_reached(address: str) -> None:
    assert is_public(parsed(address))
    error, ((connected, host, sni),) = posted("https://example.com/x", Names([address]))
    assert (error, ip_address(connected), host, sni) == (None, ip_address(address), "example.com", "example.com")


@pytest.mark.parametrize("address", INSIDE)
def test_nothing_inside_is_reached_by_a_name_that_resolves_to_it(address: str) -> None:
    assert not is_public(parsed(address))
    assert posted("https://example.com/x", Names([address])) == ("refused", [])
    assert posted("https://example.com/x", Names(["1.1.1.1", address])) == ("refused", [])


@pytest.mark.parametrize("address", INSIDE)
def test_nothing_inside_is_reached_by_its_address(address: str) -> None:
    url = f"https://[{address}]/" if ":" in address else f"https://{address}/"
    assert posted(url, Names(["1.1.1.1"])) == ("refused", [])
    assert door.fault_of(url, Settings(webhook_secrets=SecretStr(SECRET))) is not None


def test_an_address_of_one_link_is_refused() -> None:
    assert posted("https://example.com/x", Names(["fe80::1%eth0"])) == ("refused", [])


def test_cloud_metadata_is_not_reached() -> None:
    """wh-01"""
    url = corpus()["wh-01"]["callback_url"]
    assert posted(url, Names(["1.1.1.1"])) == ("refused", [])
    assert posted(url.replace("http:", "https:"), Names(["1.1.1.1"])) == ("refused", [])


def test_a_name_is_resolved_once_and_that_address_is_connected_to() -> None:
    """wh-02"""
    names = Names(["93.184.216.34"], ["127.0.0.1"])
    assert posted(corpus()["wh-02"]["callback_url"], names) == (
        None,
        [("93.184.216.34", "rebind.example", "rebind.example")],
    )
    assert names.asked == ["rebind.example"]


def test_odd_forms_of_addresses_and_other_schemes_are_refused() -> None:
    """wh-04"""
    case = corpus()["wh-04"]
    urls = [case["callback_url"], *re.findall(r"[a-z]+://[^\s,]+", case["setup"])]
    assert len(urls) == 8
    for url in urls:
        refused, names = url.rstrip("."), Names(["127.0.0.1"])
        assert posted(refused, names) == ("refused", []), url
        assert posted(refused.replace("http:", "https:"), names) == ("refused", []), url


@pytest.mark.parametrize(
    "url",
    [
        "https://2130706433/",
        "https://0x7f.1/",
        "https://127.1/",
        "https://0177.0.0.1/",
        "https://127.0.0.01/",
        "https://[::1%25eth0]/",
        "https://[::ffff:7f00:1]:0/",
        "https://user@example.com/",
        "https://user:pass@example.com/",
        "https://example.com\\@127.0.0.1/",
        "https://example.com#@127.0.0.1/",
        "https://exa mple.com/",
        "https://example.com/a\nb",
        "https://exämple.com/",
        "https://example..com/",
        "https://example.com./",
        "https://example.com:99999/",
        "https:///x",
        "https://",
        "example.com",
        "//example.com",
        "ftp://example.com/",
        "javascript:alert(1)",
    ],
)
def test_what_could_be_read_in_two_ways_is_no_url(url: str) -> None:
    assert posted(url, Names(["1.1.1.1"])) == ("refused", [])
    with pytest.raises(Located):
        read_url(url)


def test_a_url_is_taken_apart() -> None:
    target = read_url("HTTPS://Example.com:8443?x=1")
    assert (target.scheme, target.host, target.port, target.rest) == ("https", "example.com", 8443, "/?x=1")
    assert target.authority == "example.com:8443"
    assert read_url("https://[2606:2800::1]/a?b").authority == "[2606:2800::1]"


@pytest.mark.parametrize(
    ("url", "allowed", "names"),
    [
        ("http://hooks.internal:8080/x", "hooks.internal", ["10.1.2.3"]),
        ("https://hooks.internal/x", "10.1.0.0/16", ["10.1.2.3"]),
        ("http://10.1.2.3/x", "10.1.0.0/16, other.internal", ["1.1.1.1"]),
        ("http://[fd00::7]/x", "fd00::/8", ["1.1.1.1"]),
    ],
)
def test_what_the_operator_names_is_reached(url: str, allowed: str, names: list[str]) -> None:
    error, asked = posted(url, Names(names), allowed)
    assert error is None
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("url", "allowed", "names"),
    [
        ("http://hooks.internal/x", "10.1.0.0/16", ["10.1.2.3"]),  # by name, http is for names that were named
        ("https://hooks.internal/x", "10.1.0.0/16", ["10.2.0.1"]),
        ("https://hooks.internal/x", "10.1.0.0/16", ["10.1.0.1", "127.0.0.1"]),
        ("https://not.hooks.internal/x", "hooks.internal", ["10.1.2.3"]),
        ("http://example.com/", "", ["93.184.216.34"]),
    ],
)
def test_and_nothing_beside_it(url: str, allowed: str, names: list[str]) -> None:
    assert posted(url, Names(names), allowed) == ("refused", [])


@pytest.mark.parametrize("wrong", ["10.0.0.1/8", "10.0.0.0/33", "1.2.3", "fd00::/129", "fd00::1::2"])
def test_what_is_neither_network_nor_name_is_refused_by_its_setting(wrong: str) -> None:
    with environment({"MANDOR_WEBHOOK_ALLOWED": wrong}), pytest.raises(ConfigError) as caught:
        read_settings()
    assert caught.value.path == "MANDOR_WEBHOOK_ALLOWED"
    assert wrong in caught.value.message


def test_the_door_names_the_mend() -> None:
    found = door.fault_of("https://example.com/", Settings())
    assert found is not None
    assert "MANDOR_WEBHOOK_SECRETS" in found[0].message + found[1]
    plain = door.fault_of("http://example.com/", Settings(webhook_secrets=SecretStr(SECRET)))
    assert plain is not None
    assert "MANDOR_WEBHOOK_ALLOWED" in plain[0].message
    assert door.fault_of("https://example.com/", Settings(webhook_secrets=SecretStr(SECRET))) is None


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://example.com/#top", "fragment"),
        ("https://user:pass@example.com/", "password"),
        ("ftp://example.com/", "https://"),
        ("https://127.1/", "usual form"),
        ("https://example.com/a b", "blanks"),
        ("https://example.com:0/", "port"),
        ("https://example..com/", "name"),
    ],
)
def test_what_is_wrong_with_a_url_is_said(url: str, word: str) -> None:
    with pytest.raises(Located, match=word) as caught:
        read_url(url)
    assert "pass@" not in caught.value.message
