"""Log lines: JSON for machines, one short line for a person at a terminal; the same for our own and for library code.

    configure(settings)             once per process (again in a forked child: harmless); Celery's `setup_logging`
                                    signal is the place in a worker
    with identity(run_id=…, …):     everything inside carries these of the ten identity fields
        bind(state_version=8)       learnt on the way
        emit(events.StepCommitted(…))

The identity is left with its `with` block, whatever raised inside: the next task of the same process starts with none.
A thread starts with none either; hand it `snapshot()` and let it enter `identity(**snapshot)`.
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import IO, Any, Final, TypedDict, Unpack, cast, get_type_hints
from urllib.parse import unquote, urlsplit

import structlog
from structlog.typing import Processor, WrappedLogger

from orchestrator.settings import Settings
from orchestrator.telemetry import facts
from orchestrator.telemetry.events import Occurrence
from orchestrator.telemetry.render import FIRST, human, json_line
from orchestrator.telemetry.text import hide, hide_names, redacted_item

EventDict = MutableMapping[str, Any]


class Identity(TypedDict, total=False):
    """What names the work a line is about."""

    request_id: str | None
    session_id: str | None
    run_id: str | None
    job_id: str | None
    step_id: str | None
    worker_id: str | None
    lock_key: str | None
    idempotency_key: str | None
    policy_hash: str | None
    state_version: int | None


IDENTITY: Final = tuple(get_type_hints(Identity))
_NOBODY: Final[Mapping[str, Any]] = dict.fromkeys(IDENTITY)
_current: ContextVar[Mapping[str, Any] | None] = ContextVar("mandor_identity", default=None)

# Celery tells of every task twice (received, succeeded); our own facts say it better
_CHATTY: Final = ("celery.app.trace", "celery.worker.strategy")
_library: Final = logging.getLogger("mandor")
_NUMBERS: Final = {name.lower(): number for name, number in logging.getLevelNamesMapping().items()}


@contextmanager
def identity(**fields: Unpack[Identity]) -> Iterator[None]:
    """Surround work with its identity. Nested blocks add to the outer one; leaving a block restores what was before."""
    before = _current.get()
    _current.set({**(before or _NOBODY), **_checked(fields)})
    try:
        yield
    finally:
        _current.set(before)


def bind(**fields: Unpack[Identity]) -> None:
    """Add what has been learnt to the innermost block. RuntimeError outside of one: nothing would ever reset it."""
    now = _current.get()
    if now is None:
        raise RuntimeError("bind() outside of identity(): enter a `with logs.identity(…)` block first")
    _current.set({**now, **_checked(fields)})


def snapshot() -> Identity:
    """The identity here, to be entered by a thread."""
    return cast(Identity, dict(_current.get() or {}))


def _checked(fields: Identity) -> Mapping[str, Any]:
    unknown = [name for name in fields if name not in _NOBODY]
    if unknown:
        raise TypeError(f"no identity field {unknown[0]!r}; there are {', '.join(IDENTITY)}")
    return fields


def write(fact: Occurrence) -> None:
    """Log a fact. In a process that never called `configure` (a caller's own) it goes to the `mandor` logger."""
    _listener(fact)


def _to_library(fact: Occurrence) -> None:
    number = _NUMBERS[fact.level]
    if _library.isEnabledFor(number):
        line = human({**(_current.get() or {}), **_said(fact)}, colour=False)
        _library.log(number, "%s", line)


def _said(fact: Occurrence) -> dict[str, Any]:
    names: tuple[str, ...] = fact.__match_args__  # which are a dataclass's fields
    return {"event": fact.event, **{name: getattr(fact, name) for name in names}}


def announce_ready(role: str) -> None:
    """A process works from here on. Said at any log level: whoever started it waits for this line."""
    log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET))
    log.bind(logger="mandor").info("service.ready", role=role)


def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """In place of `warnings.showwarning`: the warning on one line of the log."""
    logger("py.warnings").warning(" ".join(str(message).split()), category=category.__name__)


_listener: Callable[[Occurrence], None] = _to_library
facts.listen(write)
emit: Final = facts.emit  # where the code that works says it


def logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger for user code: same lines, same identity. What it is given is its caller's decision."""
    return structlog.get_logger().bind(logger=name)  # type: ignore[no-any-return]


def configure(settings: Settings, *, logfile: str | None = None, stream: IO[str] | None = None) -> None:
    """Send every line of this process, ours and the libraries', to one stream in one format.

    logfile: appended to instead of the stream (Celery's `--logfile`); stream: standard error unless given.
    """
    _hide_secrets(settings)
    out = _opened(logfile) if logfile else stream or sys.stderr
    as_human = settings.log_format == "human" or (settings.log_format == "auto" and out.isatty())
    level = logging.getLevelNamesMapping()[settings.log_level]
    render = _human_renderer(out) if as_human else _json_renderer
    _configure_facts(level, render, out)
    _configure_loggers(level, render, out)
    _configure_stdlib(level, render, out)


def _hide_secrets(settings: Settings) -> None:
    """What the settings hold of them: nothing shows it, wherever a library may have put it. A password that is its
    user's own name keeps no secret, and hidden it would only spoil words.
    """
    urls = (settings.broker, settings.results, settings.redis_url, settings.ledger, *settings.effects_urls.split())
    for url in urls:
        with suppress(ValueError):  # it is refused elsewhere
            parts = urlsplit(url)
            password = parts.password or ""
            for text in {password, unquote(password)} - {parts.username}:
                hide(text)
    hide(settings.llm_api_key.get_secret_value())
    hide_names(name.strip().lower() for name in settings.log_redact.split(",") if name.strip())


def _configure_facts(level: int, render: Processor, out: IO[str]) -> None:
    """Three lines a step: they go no way around structlog's loggers, and come out as those do."""
    say = structlog.WriteLogger(out).msg  # type: ignore[arg-type]  # it only writes and flushes

    def listen(fact: Occurrence) -> None:
        if _NUMBERS[fact.level] >= level:
            line = {"level": fact.level, "logger": "mandor", **_said(fact)}
            say(str(render(None, fact.level, _complete(None, fact.level, line))))

    global _listener  # noqa: PLW0603  # one listener a process, like logging's root
    _listener = listen


def _configure_loggers(level: int, render: Processor, out: IO[str]) -> None:
    structlog.configure(
        processors=[structlog.processors.add_log_level, *_SHARED, render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(out),  # type: ignore[arg-type]  # it only writes and flushes
        cache_logger_on_first_use=False,
    )


def _configure_stdlib(level: int, render: Processor, out: IO[str]) -> None:
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name, *_SHARED],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(level if level <= logging.DEBUG else logging.WARNING)


def _complete(_: WrappedLogger, __: str, said: EventDict) -> EventDict:
    """The line: what was said, without secrets, and around it when, by whom and about whom."""
    shown: EventDict = {name: redacted_item(name, value) for name, value in said.items()}
    first: EventDict = {name: shown[name] for name in FIRST if name in shown}
    line: EventDict = {"timestamp": None, **first, **(_current.get() or {}), **shown}
    line["timestamp"] = _now()
    line.update(_process())
    return line


def _now() -> str:
    seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
    return f"{_second(seconds)}.{nanos // 1000:06}Z"


@lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


_SHARED: Final[list[Processor]] = [structlog.processors.format_exc_info, _complete]


@cache
def _process() -> Mapping[str, Any]:
    return {"service": "mandor", "host": socket.gethostname(), "pid": os.getpid()}


os.register_at_fork(after_in_child=_process.cache_clear)


def _json_renderer(_: WrappedLogger, __: str, line: EventDict) -> str:
    return json_line(line)


def _human_renderer(out: IO[str]) -> Processor:
    colour = out.isatty() and not os.environ.get("NO_COLOR")

    def render(_: WrappedLogger, __: str, line: EventDict) -> str:
        return human(line, colour=colour)

    return render


def _opened(path: str) -> IO[str]:
    return open(path, "a", encoding="utf-8", buffering=1)  # noqa: PTH123  # stays open as long as the process
