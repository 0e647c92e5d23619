"""`mandor exporter`: the installation's gauges, and whether its services answer, for Prometheus."""

import signal
import threading
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from orchestrator.app import app
from orchestrator.errors import ConfigError
from orchestrator.gauges import Gauges
from orchestrator.healing import looks, roles, serving
from orchestrator.healing.looker import Looker
from orchestrator.healing.pages import Pages
from orchestrator.settings import Settings
from orchestrator.telemetry import logs


def serve(given: Settings, introduce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C. ConfigError: it may not listen there, or somebody else does.

    introduce: called with its URL once it listens.
    """
    logs.configure(given)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    services = looks.Services(given)
    checks = {**looks.of_services(services), "passes": services.look_at_passes}
    lookers = [Looker(check, look, given.health_every_s) for check, look in checks.items()]
    url = _listen(given, lookers)
    for looker in lookers:
        looker.start()
    serving.remember(given.home, roles.EXPORTER, url)
    introduce(url)
    logs.announce_ready(roles.EXPORTER)
    while not stop.wait(3600):
        pass


def _listen(given: Settings, lookers: Sequence[Looker]) -> str:
    registry = CollectorRegistry()
    registry.register(Gauges(given, app))
    pages = Pages(roles.EXPORTER, list, lambda: [looker.state() for looker in lookers], registry)
    port = roles.port_of(given, roles.EXPORTER)
    try:
        return serving.serve(pages, given.health_address, port, named=roles.is_port_named(roles.EXPORTER) and port > 0)
    except ConfigError as taken:
        taken.path = roles.variable_of(roles.EXPORTER)
        raise
