"""The Celery app, and what each process has one of: `app`, `store()`, `ledger()`.

Importing this module loads the top-level celeryconfig.py that came with us and connects Celery's signals; it opens
nothing. A process that cannot keep the promises ends at its start, saying which setting is wrong and what to do.
"""

import itertools
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic, NoReturn, TypeVar

from celery import Celery, signals
from celery.exceptions import CPendingDeprecationWarning
from kombu import serialization
from kombu.exceptions import KombuError
from kombu.utils import json as kombu_json

from orchestrator import envelopes, names, policies, pools, startup
from orchestrator.errors import ConfigError, LedgerMissing, LedgerUnavailable, MandorError, StoreUnavailable
from orchestrator.ledger import Epoch, Ledger, open_ledger
from orchestrator.settings import Settings, settings, unknown_names
from orchestrator.store import Store, open_server, open_store
from orchestrator.telemetry import events, logs
from orchestrator.telemetry.text import without_secrets

CONFIG_EXIT: Final = 2


def _check_import() -> None:
    """What would make the import of this module fail. Celery's own command would print its whole stack for it."""
    try:
        startup.check_packages()
        startup.check_services(settings())  # Celery would quote what it cannot read, and name no setting
    except ConfigError as wrong:
        if not startup.is_celerys_command(sys.argv[0]):
            raise
        print(without_secrets(f"mandor: {wrong}"), file=sys.stderr)  # noqa: T201  # how to log is a setting, too
        raise SystemExit(CONFIG_EXIT) from None


_check_import()
import celeryconfig  # noqa: E402  # only after the check that it is ours

WAIT_S: Final = 1.0
TOLD_EVERY: Final = 10
SWEEP_PATIENCE_S: Final = 3.0  # two of these, for a lost connection and a new one, fit into half a lease
SWEEP_RESPITE: Final = 2.0  # so a third of a supervisor's time, at most, is spent on waiting for a ledger that hangs
BrokerRefused = KombuError  # what kombu itself raises, for modules that do not import it
T = TypeVar("T")
_registry: Any = serialization.registry  # kombu has no types

app = Celery("mandor")
app.config_from_object(celeryconfig)


# ---- one of each per process


class PerProcess(Generic[T]):
    """Made when first asked for, and again in a forked child: connections do not survive a fork."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: tuple[int, T] | None = None

    def __call__(self) -> T:
        pid = os.getpid()
        if self._made is None or self._made[0] != pid:
            self._made = (pid, self._make())
        return self._made[1]


def _open_store() -> Store:
    return open_store(settings(), reference_epoch())


def _open_ledger() -> Ledger:
    return open_ledger(settings().ledger, effects_urls=settings().effects_urls.split())


def _open_sweep_ledger() -> Ledger:
    """They look after much that needs no ledger, and few processes do it: none may be spent on waiting for one."""
    urls = settings().effects_urls.split()
    return open_ledger(settings().ledger, patience_s=SWEEP_PATIENCE_S, effects_urls=urls, respite=SWEEP_RESPITE)


ledger: Final = PerProcess(_open_ledger)
sweep_ledger: Final = PerProcess(_open_sweep_ledger)
store: Final = PerProcess(_open_store)


_epochs: Final[dict[tuple[str, str], Epoch | None]] = {}  # what was read once; a forked child inherits it


def reference_epoch() -> str:
    """The epoch the ledger has for our namespace. LedgerMissing: none was drawn. ConfigError: for other shards.

    It never changes, so a child that is forked goes by what its parent has read: a ledger that hangs holds up nothing
    that needs none.
    """
    given = settings()
    place = (given.ledger, given.namespace)
    found = _epochs[place] = _epochs.get(place) or ledger().epoch(given.namespace)
    if found is None:
        raise LedgerMissing(f"the ledger knows no namespace {given.namespace}", hint="run `mandor ledger upgrade`")
    if found.shards != given.shards:
        raise ConfigError(
            f"this namespace was set up with {found.shards} shards, not {given.shards}",
            path="MANDOR_SHARDS",
            hint=f"set MANDOR_SHARDS={found.shards}",
        )
    return found.epoch


# ---- JSON as it was sent


def plain_loads(data: bytes | bytearray | memoryview | str) -> Any:
    """JSON and nothing else. Kombu's own reader turns objects with __type__ and __value__ into other things."""
    text = data.encode(errors="surrogatepass") if isinstance(data, str) else bytes(data)
    value = json.loads(data if isinstance(data, str) else text)
    envelopes.refuse_too_deep(value, text)
    return value


def speak_plain_json(**_: Any) -> None:
    """From here on this process reads application/json as it was written.

    Only for workers: kombu's registry belongs to the process, and in a caller's own it may serve other apps too.
    """
    _registry.register("json", kombu_json.dumps, plain_loads, content_type="application/json", content_encoding="utf-8")


# ---- starting


@signals.setup_logging.connect(weak=False)
def _configure_logs(logfile: str | None = None, **_: Any) -> None:
    logs.configure(settings(), logfile=logfile)
    from orchestrator import terse  # with libraries that only Celery's processes need

    terse.install()


@signals.celeryd_init.connect(weak=False)
def read_anything(**_: Any) -> None:
    """Before a worker's first connection, and its first child."""
    envelopes.install()
    pools.install()


signals.celeryd_init.connect(speak_plain_json, weak=False)


@signals.celeryd_init.connect(weak=False)
def _log_warnings(**_: Any) -> None:
    """Celery warns of a few things before its logging is set up, on many lines. What it is going to change in a later
    release is told with each lost connection, to people who can do nothing about it.
    """
    logs.configure(settings())
    warnings.simplefilter("ignore", CPendingDeprecationWarning)
    warnings.showwarning = logs.show_warning


@signals.worker_init.connect(weak=False)
def _start_worker(sender: Any, **_: Any) -> None:
    from orchestrator.healing import worker as watched  # with libraries that only a worker needs

    given = settings()
    queues = sender.app.amqp.queues
    control = names.queue(given.prefix, "control")
    if given.embedded and control in queues.consume_from:
        queues.select_add(queues["celery"])
    launch = startup.Launch(_pool_name(sender.pool_cls), frozenset(queues.consume_from), sender.app.conf, os.environ)
    who = watched.Who(str(sender.hostname), launch.queues)
    _start(lambda: startup.check_worker(given, launch), lambda: watched.begin(given, who))


@signals.worker_ready.connect(weak=False)
def _announce_worker(sender: Any, **_: Any) -> None:
    logs.announce_ready(str(sender.hostname).partition("@")[0])


@signals.beat_init.connect(weak=False)
def _start_beat(**_: Any) -> None:
    _start(lambda: startup.check_configuration(settings(), app.conf))
    logs.announce_ready("beat")


def _pool_name(pool: Any) -> str:
    return pool if isinstance(pool, str) else str(pool.__module__).rpartition(".")[2]


def _start(check_role: Callable[[], None], begin: Callable[[], object] = lambda: None) -> None:
    """All checks of a process of ours.

    begin: called when nothing of its own stands in the way, before its services are waited for.
    """
    logs.configure(settings())  # Celery's own turn comes later
    with or_refuse():
        startup.check_environment(settings())
        policies.installation_policy(settings())
        check_role()
        begin()
        _wait_for_services()
    for name in unknown_names():
        logs.logger("mandor").warning("setting.unknown", name=name, hint="correct or unset it")


def check_client() -> None:
    """The same for a process that is not ours (a caller, the command line): raises ConfigError."""
    startup.check_environment(settings())
    startup.check_configuration(settings(), app.conf)


def _wait_for_services() -> None:
    """Until ledger and store answer: a process started during an outage recovers with it. Refusals are raised."""
    for look in itertools.count():
        try:
            check_servers(settings(), store())
            return
        except (StoreUnavailable, LedgerUnavailable) as error:
            if look % TOLD_EVERY == 0:
                log = logs.logger("mandor")
                log.warning("service.waiting", kind=error.kind, message=error.message, hint=error.hint)
            time.sleep(WAIT_S)


def check_servers(given: Settings, checked: Store) -> None:
    """ConfigError for a server that would throw away what it is given. StoreUnavailable: one does not answer."""
    startup.check_server(checked.admin, given)
    for name, url in startup.other_servers(given):
        startup.check_keeper(open_server(given, url), name)


@contextmanager
def or_refuse() -> Iterator[None]:
    """Whatever goes wrong in here ends this process. Celery logs what a signal's receiver raises and goes on, so that
    it would work unchecked; SystemExit ends it.
    """
    try:
        yield
    except MandorError as error:
        refuse(error)
    except Exception as error:  # noqa: BLE001  # nobody thought of this one
        refuse(MandorError(f"the start broke off: {type(error).__name__}: {error} ({events.where(error)})"))


def refuse(error: MandorError) -> NoReturn:
    """Say why this process does not start, once for people and once for machines, and end it."""
    logs.emit(events.ServiceRefused(error.kind, str(error), error.hint))
    print(without_secrets(f"mandor: {error}"), file=sys.stderr)  # noqa: T201  # the log may go to a file nobody looks at
    raise SystemExit(CONFIG_EXIT)
