"""Whatever lies in a queue on Redis becomes a message: kombu's transport, made to read what is no message at all.

As it comes, kombu's worker ends when it pops bytes that are not JSON, and takes JSON without `properties` for a lost
connection: it connects anew, which gives back every step that is running there. Here such an entry is wrapped into a
message of its own, with headers that say what was wrong and the entry itself as its body. The consumer keeps it as a
dead letter and acknowledges it like any other. Nothing here does I/O.

Only workers read with it (`install`); what it sends is what kombu sends.
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import uuid4

import kombu.transport
from kombu.transport import redis
from kombu.utils import json as kombu_json

ALIASES: Final = ("redis", "rediss")
# the header that a wrapped entry carries, and what it says
UNREADABLE: Final = "mandor-unreadable"
CONTENT_TYPE: Final = "application/octet-stream"
# A worker hands messages on to its children pickled, and pickle gives up long before the JSON reader does: the worker
# would end, and end again with each copy of the message. Far more than any message of ours needs.
DEEPEST: Final = 200


def install() -> None:
    """From here on this process reads redis:// queues so. Connections that were made before keep what they have."""
    for alias in ALIASES:
        kombu.transport.TRANSPORT_ALIASES[alias] = f"{__name__}:Transport"
        kombu.transport._transport_cache.pop(alias, None)  # noqa: SLF001  # kombu resolves a name once


_loads: Callable[[str], Any] = kombu_json.loads


# ---- pure


def readable(item: Any, queue: str) -> Any:
    """A list's entry as it came, or, if kombu could not parse it, wrapped."""
    raw = item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")
    try:
        refuse_too_deep(_loads(raw.decode()), raw)
    except (ValueError, TypeError, RecursionError) as wrong:
        return json.dumps(wrapped(raw, f"not a message: {type(wrong).__name__}: {wrong}", queue)).encode()
    return item


def refuse_too_deep(value: Any, text: bytes) -> None:
    """ValueError if a value, which was read from this text, cannot be handed on."""
    if text.count(b"[") + text.count(b"{") > DEEPEST and _is_deeper(value, DEEPEST):
        raise ValueError(f"nested more than {DEEPEST} levels deep")


def _is_deeper(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels + 1):
        level = [child for one in level for child in _children(one)]
    return bool(level)


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def whole(message: Any, queue: str) -> Any:
    """A parsed entry as it came, or, if it lacks what a message has, wrapped."""
    fault = defect(message)
    if fault is None:
        return message
    return wrapped(json.dumps(message, default=str).encode(), f"not a message: {fault}", queue)


def defect(message: Any) -> str | None:
    """What a parsed entry lacks to be a message."""
    if not isinstance(message, dict):
        return "not an object"
    properties = message.get("properties")
    if not isinstance(properties, dict):
        return "without properties"
    if not isinstance(properties.get("delivery_tag"), str):
        return "without a delivery tag"
    where = properties.get("delivery_info")
    if not isinstance(where, dict) or not _are_names(where, "exchange", "routing_key"):
        return "without its exchange and routing key"
    if not isinstance(message.get("headers") or {}, dict):
        return "its headers are no object"
    return _body_defect(message, properties)


def _are_names(where: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(where.get(name), str) for name in names)


def _body_defect(message: Mapping[str, Any], properties: Mapping[str, Any]) -> str | None:
    body, encoding = message.get("body"), properties.get("body_encoding")
    if not isinstance(body, str | None):
        return "its body is no text"
    if encoding not in (None, "base64", "utf-8"):
        return "its body is encoded in an unknown way"
    try:
        base64.b64decode((body or "").encode("ascii") if encoding == "base64" else b"")
    except ValueError:
        return "its body is no base64"
    return None


def wrapped(raw: bytes, reason: str, queue: str) -> dict[str, Any]:
    """A message that carries an entry as its body."""
    return {
        "body": base64.b64encode(raw).decode(),
        "content-type": CONTENT_TYPE,
        "content-encoding": "binary",
        "headers": {UNREADABLE: reason[:500]},
        "properties": {
            "body_encoding": "base64",
            "delivery_tag": str(uuid4()),
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
        },
    }


def unfit_body(body: Any) -> str | None:
    """Why Celery's child would stumble over a decoded body, which is a list of three as it should be."""
    if not isinstance(body, list) or len(body) != len(_PARTS):
        return None  # Celery refuses it, or it is of the first protocol
    for part, (name, kind) in zip(body, _PARTS, strict=True):
        if not isinstance(part, kind):
            return f"its body's {name} are {type(part).__name__}"
    return None


_PARTS: Final = (("arguments", list), ("fields", dict), ("links", dict | None))


def unfit(headers: Mapping[str, Any]) -> str | None:
    """Why Celery would stumble over a task message with these headers, instead of refusing it."""
    if "task" not in headers:
        return None  # Celery says that this is no task
    for name, kinds in _HEADERS.items():
        if not isinstance(headers.get(name), kinds):
            return f"its header {name} is {type(headers.get(name)).__name__}"
    limits = headers.get("timelimit")
    if limits is not None and not _are_limits(limits):
        return "its time limit is no pair of numbers"
    return None


_HEADERS: Final = {
    "task": str,
    "id": str,
    **dict.fromkeys(
        ("eta", "expires", "group", "root_id", "parent_id", "shadow", "argsrepr", "kwargsrepr"), str | None
    ),
    **dict.fromkeys(("retries", "group_index", "ignore_result"), int | None),
}


def _are_limits(limits: Any) -> bool:
    pair = isinstance(limits, list | tuple) and len(limits) == 2
    return pair and all(isinstance(one, int | float | None) and not isinstance(one, bool) for one in limits)


# ---- where kombu is met


class Channel(redis.Channel):
    """Looks at what BRPOP brings before kombu parses it; drops broadcasts that are none.

    It also keeps the client that its short calls share. Kombu makes one for each call, though it is no more than a way
    to the pool of connections; with redis-py 8 that is a fifth of all a worker does for a task. And it is closed for
    good by the first call that closes it.
    """

    _short_calls: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous)  # type: ignore[no-untyped-call]
        if self._short_calls is None or self._short_calls.connection_pool is not self.pool:
            self._short_calls = super()._create_client()  # type: ignore[no-untyped-call]
        return self._short_calls

    def close(self) -> None:
        """Kombu first reads what the server still owes, and leaves it at that if the server is gone. Who closes the
        channel once more has no connection by then over which it could give back what is in hand: by that error, which
        is none of a lost connection's, a worker ends. So all that can be done without reading is done at once.
        """
        try:
            super().close()  # type: ignore[no-untyped-call]
        except self.connection_errors:
            self._close_unread()

    def _close_unread(self) -> None:
        try:
            super().close()  # type: ignore[no-untyped-call]
        except self.connection_errors as error:
            redis.logger.warning("a channel was closed as it was: %s", error)
        finally:
            self.closed = True

    def _get_client(self) -> Any:
        client = super()._get_client()  # type: ignore[no-untyped-call]
        return type("Client", (_Looking, client), {}) if isinstance(client, type) else client

    def _deliver_fanout_message(self, message: Any, exchange: str) -> Any:
        fault = defect(message)
        if fault is None:
            return super()._deliver_fanout_message(message, exchange)  # type: ignore[no-untyped-call]
        redis.logger.warning("a broadcast to %s is no message: %s", exchange, fault)
        return False


class _Looking:
    """What a channel's Redis client does differently."""

    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        reply = super().parse_response(connection, command_name, **options)  # type: ignore[misc]
        if command_name == "BRPOP" and reply:
            key, item = reply
            return [key, readable(item, _queue_of(key))]
        return reply


def _queue_of(key: Any) -> str:
    """The queue that a list belongs to: kombu keeps each priority in a list of its own."""
    name = key.decode(errors="replace") if isinstance(key, bytes) else str(key)
    return name.rsplit(redis.Channel.sep, 1)[0]


class Transport(redis.Transport):
    """Hands on nothing but messages."""

    Channel = Channel

    def _deliver(self, message: Any, queue: str) -> None:
        super()._deliver(whole(message, queue), queue)  # type: ignore[no-untyped-call]
