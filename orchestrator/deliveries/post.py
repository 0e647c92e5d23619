"""One POST to somebody's URL: to an address that was judged, in bounded time, with nothing read but status and headers.

Name servers, connection, TLS and answer share one limit of time. Redirects are answers like others, for their target
was not judged. A proxy of the environment is not used: it would resolve the name anew.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import httpx2

from orchestrator import retry_after
from orchestrator.deliveries.guard import Allowed, Refused, check_addresses, check_url, parsed
from orchestrator.deliveries.schedule import REFUSED, Answer
from orchestrator.releases import release
from orchestrator.within import within
from schemas.callback import Address, Target, read_url
from schemas.issues import Located

_CHATTY: Final = ("httpx2", "httpcore2")  # they log whole URLs, which may be as good as a password
Resolve = Callable[[str, int], Sequence[str]]
MOST_ADDRESSES: Final = 3  # of one host that are tried in turn
LONGEST_WAIT_S: Final = 30 * 86_400.0


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, those first that are likely to work."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Poster:
    """Posts. resolve, transport, trust: for tests; else the system's resolver, sockets and certificates."""

    def __init__(
        self,
        allowed: Allowed,
        timeout_s: float,
        resolve: Resolve = resolve,
        transport: httpx2.AsyncBaseTransport | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
        self._allowed = allowed
        self._timeout_s = timeout_s
        self._resolve = resolve
        self._transport = transport
        self._trust = trust

    def post(self, url: str, headers: Mapping[str, str], body: str) -> Answer:
        """What came of it. Nothing that the other side does is raised."""
        end = time.monotonic() + self._timeout_s
        try:
            target = read_url(url)
            addresses = self._addresses(target)
            return asyncio.run(self._within(end, target, addresses, headers, body))
        except (Refused, Located, httpx2.InvalidURL) as why:
            return Answer(error=REFUSED, why=str(why))
        except (TimeoutError, httpx2.TimeoutException):
            return Answer(error="timeout", why=f"no answer within {self._timeout_s:g} s")
        except Exception as wrong:  # noqa: BLE001  # whatever an answer makes the library stumble over
            return Answer(error=_word(wrong), why=f"{_word(wrong)}: {_said(wrong)}")

    def _addresses(self, target: Target) -> list[Address]:
        """Those that may be connected to. Resolved once: the next answer might be another."""
        check_url(target, self._allowed)
        host = target.host
        if not isinstance(host, str):
            return [host]
        texts = within(self._timeout_s, lambda: self._resolve(host, target.port), "resolver")
        found = [parsed(text) for text in texts]
        if not self._allowed.names(target):
            check_addresses(found, self._allowed)
        return found[:MOST_ADDRESSES]

    async def _within(
        self, end: float, target: Target, addresses: Sequence[Address], headers: Mapping[str, str], body: str
    ) -> Answer:
        """The limits of the library are those of single reads: a server that sends a byte now and then meets none."""
        left_s = end - time.monotonic()
        async with asyncio.timeout(left_s), self._client(left_s / max(len(addresses), 1)) as client:
            return await _first_that_connects(client, target, addresses, headers, body)

    def _client(self, connect_s: float) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=self._transport,
            verify=self._trust or True,
            trust_env=False,
            follow_redirects=False,
            timeout=httpx2.Timeout(self._timeout_s, connect=max(connect_s, 0.001)),
            headers={"user-agent": f"mandor/{release('mandor')}"},
        )


async def _first_that_connects(
    client: httpx2.AsyncClient,
    target: Target,
    addresses: Sequence[Address],
    headers: Mapping[str, str],
    body: str,
) -> Answer:
    failed: Exception = OSError("the name has no address")
    for address in addresses:
        try:
            return await _post_to(client, target, address, headers, body)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as wrong:
            failed = wrong
    raise failed


async def _post_to(
    client: httpx2.AsyncClient, target: Target, address: Address, headers: Mapping[str, str], body: str
) -> Answer:
    """The name goes where servers look for it: into the Host header, and into TLS, which the certificate must fit."""
    where = f"[{address}]" if address.version == 6 else str(address)
    sent = {**headers, "host": target.authority, "content-type": "application/json"}
    url, named = f"{target.scheme}://{where}:{target.port}{target.rest}", {"sni_hostname": str(target.host)}
    async with client.stream("POST", url, headers=sent, content=body.encode(), extensions=named) as answer:
        if answer.is_success:
            return Answer(answer.status_code)
        wait_s = retry_after.seconds(answer.headers.get("retry-after", ""), LONGEST_WAIT_S)
        return Answer(answer.status_code, "status", wait_s)


def _causes(wrong: BaseException) -> list[BaseException]:
    """The error and what it comes from, the last of which knows most."""
    causes = [wrong]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and len(causes) < 10:
        causes.append(cause)
    return causes


def _said(wrong: BaseException) -> str:
    """What the system said, which names the address; else what kind of error it is."""
    said = [cause.strerror for cause in _causes(wrong) if isinstance(cause, OSError) and cause.strerror]
    return said[-1] if said else type(wrong).__name__


def _word(wrong: BaseException) -> str:
    """One stable word for what went wrong on the wire."""
    causes = _causes(wrong)
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return "tls"
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "unresolved"
    return "unreachable" if isinstance(wrong, OSError | httpx2.ConnectError) else "broken_answer"
