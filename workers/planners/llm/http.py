"""The HTTP client that the providers' libraries are given, and what its answers mean.

The libraries bound each silence on the wire, but neither a request as a whole nor its size: a server that sends a byte
a minute would hold a worker for ever, one that never stops would fill its memory. So the body is read here, by clock
and byte. Redirects are not followed: they would carry the key to somebody else.
"""

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import httpx2

from orchestrator import retry_after
from orchestrator.telemetry.text import hide, printable, without_secrets
from workers.planners.llm.protocol import ModelMisconfigured, ModelRateLimited, ModelTimeout, ModelUnavailable

MOST_BYTES: Final = 16 * 1024 * 1024
LONGEST_WAIT_S: Final = 3600.0
CONNECT_S: Final = 10.0
_SHOWN: Final = 300
_DEADLINE: Final = "mandor.deadline"
_CHATTY: Final = ("openai", "anthropic", "httpx2", "httpcore2")  # at DEBUG they log whole prompts
_NO_QUOTA: Final = frozenset({"insufficient_quota", "billing_error", "billing_not_active"})
_HINTS: Final = {
    400: "if it is about the response format, set MANDOR_LLM_STRUCTURED=false; else see what MANDOR_LLM_MODEL can take",
    401: "set MANDOR_LLM_API_KEY",
    402: "the account behind MANDOR_LLM_API_KEY has to be paid",
    403: "the key of MANDOR_LLM_API_KEY may not use this model",
    404: "compare MANDOR_LLM_MODEL and MANDOR_LLM_BASE_URL with what the provider offers",
    413: "goal and context are too large for this model; narrow MANDOR_GOAL_BYTES",
    422: "if it is about the response format, set MANDOR_LLM_STRUCTURED=false",
}
_REDIRECTED: Final = "put the address it redirects to into MANDOR_LLM_BASE_URL"
_ELSEWHERE: Final = "compare the MANDOR_LLM_* settings with the provider's documentation"

T = TypeVar("T")


def client() -> httpx2.Client:
    """A client whose answers are bounded. The time of a request is its own; see `timeout`."""
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    return httpx2.Client(
        follow_redirects=False,
        headers={"accept-encoding": "identity"},  # a bound on bytes is none if they unfold
        event_hooks={"request": [_start], "response": [_bound]},
    )


def timeout(seconds: float) -> httpx2.Timeout:
    """The time of a whole request."""
    return httpx2.Timeout(seconds, connect=min(CONNECT_S, seconds))


def _start(request: httpx2.Request) -> None:
    limit = request.extensions.get("timeout", {}).get("read")
    request.extensions[_DEADLINE] = time.monotonic() + limit if limit is not None else math.inf


def _bound(response: httpx2.Response) -> None:
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise httpx2.RemoteProtocolError(f"the answer is encoded as {printable(encoding[:40])}, which nobody asked for")
    assert isinstance(response.stream, httpx2.SyncByteStream)
    response.stream = Bounded(response.stream, response.request)


class Bounded(httpx2.SyncByteStream):
    """A body that ends with an error when its time or its size is used up."""

    def __init__(self, stream: httpx2.SyncByteStream, request: httpx2.Request) -> None:
        self._stream = stream
        self._request = request

    def __iter__(self) -> Iterator[bytes]:
        size, deadline = 0, self._request.extensions[_DEADLINE]
        for chunk in self._stream:
            size += len(chunk)
            if size > MOST_BYTES:
                raise httpx2.RemoteProtocolError(f"the answer has more than {MOST_BYTES} bytes", request=self._request)
            if time.monotonic() > deadline:
                raise httpx2.ReadTimeout("the answer took too long to arrive", request=self._request)
            yield chunk

    def close(self) -> None:
        self._stream.close()


# ---- one client a process

_made: dict[Any, tuple[int, Any]] = {}


def of_this_process(key: Any, make: Callable[[], T]) -> T:
    """What `make` made for this key in this very process: connections do not survive a fork."""
    pid, made = _made.get(key, (0, None))
    if pid != os.getpid():
        made = make()
        _made[key] = (os.getpid(), made)
    return made  # type: ignore[no-any-return]


# ---- what went wrong


def checked_key(key: str) -> str:
    """The key, if it can be sent; from now on no log line and no message shows it."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ModelMisconfigured("the key holds characters that no header carries", hint="set MANDOR_LLM_API_KEY anew")
    hide(key)
    return key


def status_error(status: int, headers: httpx2.Headers, body: object, said: str) -> Exception:
    """The error of a status beyond 299. said: the server's words, which are shown cut and escaped."""
    message = f"the model's server answered {status}: {_shown(said)}"
    if status == httpx2.codes.TOO_MANY_REQUESTS and not _NO_QUOTA & _words(body):
        return ModelRateLimited(message, retry_after_s=retry_after_s(headers))
    if status == httpx2.codes.REQUEST_TIMEOUT:
        return ModelTimeout(message)
    if status >= httpx2.codes.INTERNAL_SERVER_ERROR or status in {409, 425}:
        return ModelUnavailable(message, retry_after_s=retry_after_s(headers))
    hint = _REDIRECTED if status < httpx2.codes.BAD_REQUEST else _HINTS.get(status, _ELSEWHERE)
    return ModelMisconfigured(message, hint=_HINTS[402] if status == httpx2.codes.TOO_MANY_REQUESTS else hint)


def _shown(text: str) -> str:
    """The beginning of somebody's words. Secrets are taken out before the cut, which could halve one."""
    return printable(without_secrets(text[: 32 * _SHOWN])[:_SHOWN])


def _words(body: object) -> set[str]:
    """The error's own code and type."""
    inner = body.get("error", body) if isinstance(body, dict) else {}
    return {str(inner.get(name)) for name in ("code", "type")} if isinstance(inner, dict) else set()


def retry_after_s(headers: httpx2.Headers) -> float:
    """Seconds from now until the server wants to hear of us again; 0 where it did not say so in a readable way."""
    return retry_after.seconds(headers.get("retry-after", ""), LONGEST_WAIT_S)


def cause_of(error: BaseException) -> str:
    """What lies below a library's `Connection error.`, short."""
    cause = error.__cause__ or error
    return _shown(f"{type(cause).__name__}: {cause}")


def parsed(content: bytes) -> Any:
    """The body of a good answer. ModelUnavailable: it is no JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ModelUnavailable(
            f"the model's server answered with something that is no JSON ({len(content)} bytes)"
        ) from None
