"""A real Prometheus and a real Alertmanager under what deploy/ ships: only addresses and intervals are others."""

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.local.address import free_port
from tests.support.monitoring import ALERTMANAGER, INSTALL, PROMETHEUS, RULES, targets
from tests.support.processes import Processes

EVERY = "1s"
SHIPPED_EVERY = "15s"
SHIPPED_RECEIVER = "127.0.0.1:9093"


@dataclass(frozen=True)
class Seen:
    """An alert whose expression is true. state: `pending` while its time runs, then `firing`."""

    name: str
    state: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Watchmen:
    """Where they answer."""

    prometheus: str
    alertmanager: str

    def values(self, query: str) -> dict[str, float]:
        """What PromQL answers now, by the one label of each sample (`` if it has none)."""
        found = _asked(f"{self.prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}")
        return {_label(one["metric"]): float(one["value"][1]) for one in found["data"]["result"]}

    def alerts(self) -> list[Seen]:
        """Those whose expression is true now."""
        found = _asked(f"{self.prometheus}/api/v1/alerts")["data"]["alerts"]
        return [Seen(one["labels"]["alertname"], one["state"], one["labels"]) for one in found]

    def firing(self) -> set[str]:
        return {one.name for one in self.alerts() if one.state == "firing"}

    def told(self) -> dict[str, str]:
        """What has reached Alertmanager, and the receivers it goes to."""
        found = _asked(f"{self.alertmanager}/api/v2/alerts")
        return {
            one["labels"]["alertname"]: " ".join(receiver["name"] for receiver in one["receivers"]) for one in found
        }


def _label(labels: Mapping[str, str]) -> str:
    return " ".join(value for name, value in sorted(labels.items()) if name != "__name__")


def _asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


def start_watchmen(processes: Processes, folder: Path, ports: Mapping[str, int]) -> Watchmen:
    """They end with the other processes. ports: of our roles."""
    for name in ("prometheus", "prometheus-alertmanager"):
        if shutil.which(name) is None:
            pytest.skip(f"no {name} here: {INSTALL}")
    receiver = f"127.0.0.1:{free_port()}"
    return Watchmen(
        _start_prometheus(processes, folder / "prometheus", ports, receiver),
        _start_alertmanager(processes, folder / "alertmanager", receiver),
    )


def _start_prometheus(processes: Processes, folder: Path, ports: Mapping[str, int], receiver: str) -> str:
    folder.mkdir()
    shutil.copy(RULES, folder)
    config = folder / PROMETHEUS.name
    config.write_text(_with_addresses(PROMETHEUS.read_text(encoding="utf-8"), ports, receiver), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    options = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}")
    processes.start("prometheus", "prometheus", *options, ready="ready to receive web requests")
    return f"http://{address}"


def _with_addresses(text: str, ports: Mapping[str, int], receiver: str) -> str:
    changes = {f"127.0.0.1:{shipped}": f"127.0.0.1:{ports[role]}" for role, shipped in targets().items()}
    for shipped, ours in {**changes, SHIPPED_RECEIVER: receiver, SHIPPED_EVERY: EVERY}.items():
        assert shipped in text
        text = text.replace(shipped, ours)
    return text


def _start_alertmanager(processes: Processes, folder: Path, address: str) -> str:
    folder.mkdir()
    options = (f"--config.file={ALERTMANAGER}", f"--storage.path={folder}", f"--web.listen-address={address}")
    processes.start(
        "alertmanager", "prometheus-alertmanager", *options, "--cluster.listen-address=", ready=r"Listening|listening"
    )
    return f"http://{address}"
