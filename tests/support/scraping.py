"""Metrics and health as Prometheus and probes see them."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from orchestrator.healing import serving
from tests.support.waiting import eventually

# of what is promised within a bound, as long again is granted to a busy machine: so much at most, and in all at least
NOISE_S = 5.0
LEAST_S = 4.0


def url_of(home: Path, role: str) -> str:
    """Where the role's process listens, once it does."""
    return eventually(lambda: serving.remembered(home, role), what=f"the address of {role}") or ""


def scraped(url: str) -> dict[str, float]:
    """Every sample of /metrics, by its name and labels: `name{a="b"}`."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        shown(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def shown(name: str, labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{inner}}}" if inner else name


def family(samples: Mapping[str, float], name: str) -> dict[str, float]:
    """The values of a metric with one label, by that label's value; those that are 0 left out."""
    found = {key: value for key, value in samples.items() if key.startswith(f"{name}{{")}
    return {key.partition('"')[2].removesuffix('"}'): value for key, value in found.items() if value}


def probed(url: str, path: str) -> tuple[int, dict[str, Any]]:
    """Status and answer of a page of health."""
    try:
        answer = urllib.request.urlopen(f"{url}{path}", timeout=10)
    except urllib.error.HTTPError as bad:
        answer = bad
    with answer:
        return answer.status, json.loads(answer.read())


def failing(url: str, path: str) -> set[str]:
    """The names of the checks that fail."""
    return {one["check"] for one in probed(url, path)[1].get("failing", ())}


def granted_s(bound_s: float) -> float:
    """How long a test waits for what is promised within a bound."""
    return max(LEAST_S, min(2 * bound_s, bound_s + NOISE_S))


@contextmanager
def turning(url: str, path: str, wanted: set[str], bound_s: float) -> Iterator[None]:
    """What is done in here makes exactly these checks fail, within the bound counted from the moment before it."""
    began = time.monotonic()
    yield
    while (found := failing(url, path)) != wanted:
        late = f"{bound_s:g} s are promised, and after {time.monotonic() - began:.1f} s {found} fail, not {wanted}"
        assert time.monotonic() - began <= granted_s(bound_s), late
        time.sleep(0.01)
    assert time.monotonic() - began <= granted_s(bound_s), f"{bound_s:g} s are promised"


def turns(url: str, path: str, wanted: set[str], bound_s: float) -> None:
    """The same of what has just been done."""
    with turning(url, path, wanted, bound_s):
        pass
