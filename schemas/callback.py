"""Who is told of a run's end, in which words: the URL a submission may name, and the body that is posted to it.

A callback has one id for each generation of a run. It is derived from both, so whoever tells an end again, even after
the ledger was brought back from a copy, tells it under the same id.
"""

import json
import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, Field

from schemas.base import to_rfc3339
from schemas.issues import Located

URL_CHARACTERS: Final = 2048
REASON_CHARACTERS: Final = 1024
PORTS: Final = {"https": 443, "http": 80}
ID: Final = re.compile(r"msg_[0-9a-f]{32}_[1-9][0-9]{0,9}")
# what any part may be made of; nothing that two readers of URLs could understand in two ways
_PRINTABLE: Final = re.compile(r"[!-~]+")
_URL: Final = re.compile(r"([a-z]+)://([^/?#]*)([/?][^#]*)?", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")
_NAME: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")
# resolvers read 2130706433, 127.1 and 0x7f.1 as addresses, too
_NUMERIC: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)")
_NOT_AN_ADDRESS: Final = "a host in numbers is an address in its usual form: 192.0.2.1, [2001:db8::1]"

Address: TypeAlias = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Target:
    """A callback's URL, taken apart. host: a name in lower case, or an address; rest: path and query, at least "/"."""

    scheme: str
    host: str | Address
    port: int
    rest: str

    @property
    def authority(self) -> str:
        """Host and, where it is not the usual one, port, as a Host header has them."""
        host = f"[{self.host}]" if isinstance(self.host, IPv6Address) else str(self.host)
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def read_url(url: str) -> Target:
    """The URL taken apart. Located says what is wrong with it."""
    if not _PRINTABLE.fullmatch(url) or "\\" in url:
        raise Located("callback", "a URL has no blanks, control characters, backslashes, and nothing beyond ASCII")
    if "#" in url:
        raise Located("callback", "a fragment (#…) is never sent; leave it out")
    parts = _URL.fullmatch(url)
    scheme = parts[1].lower() if parts else ""
    if parts is None or scheme not in PORTS:
        raise Located("callback", "give an https:// URL")
    host, port = _authority(parts[2], PORTS[scheme])
    rest = parts[3] or "/"
    return Target(scheme, host, port, rest if rest.startswith("/") else f"/{rest}")


def host_of(url: str) -> str:
    """By what callbacks to one server are put together; of any text: the end of a run must not depend on its URL."""
    scheme, _, rest = url.lower().partition("://")
    host = re.split("[/?]", rest, maxsplit=1)[0]
    return host.removesuffix(f":{PORTS[scheme]}") if scheme in PORTS else host


def _authority(text: str, usual_port: int) -> tuple[str | Address, int]:
    if "@" in text:
        raise Located("callback", "no user and password in the URL; what is sent is signed")
    parts = _AUTHORITY.fullmatch(text)
    port = int(parts[2] or usual_port) if parts else 0
    if parts is None or not 0 < port < 65_536:
        raise Located("callback", "there is no host, or no port that one can have")
    return _host(parts[1]), port


def _host(text: str) -> str | Address:
    try:
        if text.startswith("["):
            return IPv6Address(text[1:-1])
        if _NUMERIC.fullmatch(text):
            return IPv4Address(text)
    except AddressValueError:
        raise Located("callback", _NOT_AN_ADDRESS) from None
    if not _NAME.fullmatch(text):
        raise Located("callback", "the host is no name that a server can have")
    return text.lower()


def _checked(url: str) -> str:
    read_url(url)
    return url


Callback = Annotated[str, Field(min_length=1, max_length=URL_CHARACTERS), AfterValidator(_checked)]


def delivery_id(run_id: str, generation: int) -> str:
    """The one id under which this end is told, however often."""
    return f"msg_{run_id.replace('-', '')}_{generation}"


def body_of(
    run_id: str,
    request_id: str,
    session_id: str | None,
    generation: int,
    status: str,
    reason: str | None,
    ended_at: int,
) -> str:
    """What is posted: how the run ended and what it is known by; neither results nor context. ended_at: ms."""
    data = {
        "run_id": run_id,
        "request_id": request_id,
        "session_id": session_id,
        "status": status,
        "reason": reason[:REASON_CHARACTERS] if reason else reason,
        "generation": generation,
        "ended_at": to_rfc3339(ended_at),
    }
    return event_text(f"run.{status}", ended_at, data)


def event_text(kind: str, at_ms: int, data: dict[str, Any]) -> str:
    """An event as Standard Webhooks has them, in ASCII."""
    return json.dumps({"type": kind, "timestamp": to_rfc3339(at_ms), "data": data}, separators=(",", ":"))
