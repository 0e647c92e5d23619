"""A real browser without a window, spoken to as the WebDriver standard says; chromedriver is the only helper."""

import base64
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.local.address import free_port
from tests.support.waiting import eventually

INSTALL = "apt install chromium chromium-driver"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1600,1000",
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the standard's name for a reference to an element


class Browser:
    """One window."""

    def __init__(self, driver: str, session: str) -> None:
        self._base = f"{driver}/session/{session}"

    def open(self, url: str) -> None:
        """Returns when the page is loaded; what its scripts fetch may still come."""
        call("POST", f"{self._base}/url", {"url": url})

    @property
    def title(self) -> str:
        return str(call("GET", f"{self._base}/title"))

    def text(self, selector: str) -> str:
        """The visible text of the first element that fits; empty if none does."""
        found = call("POST", f"{self._base}/elements", {"using": "css selector", "value": selector})
        return str(call("GET", f"{self._base}/element/{found[0][ELEMENT]}/text")) if found else ""

    def run(self, script: str) -> Any:
        """What a piece of JavaScript returns."""
        return call("POST", f"{self._base}/execute/sync", {"script": script, "args": []})

    def photograph(self, path: Path) -> None:
        """A PNG of the window."""
        path.write_bytes(base64.b64decode(call("GET", f"{self._base}/screenshot")))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with an empty profile. Skips the test where none is installed."""
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip(f"no browser here: {INSTALL}")
    driver = f"http://127.0.0.1:{(port := free_port())}"
    with subprocess.Popen(
        [chromedriver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            eventually(lambda: is_ready(driver), what="chromedriver")
            options = {"binary": chromium, "args": [*FLAGS, f"--user-data-dir={folder}"]}
            wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
            session = call("POST", f"{driver}/session", wanted)["sessionId"]
            try:
                yield Browser(driver, session)
            finally:
                call("DELETE", f"{driver}/session/{session}")
        finally:
            server.terminate()


def is_ready(driver: str) -> bool:
    try:
        return bool(call("GET", f"{driver}/status")["ready"])
    except OSError:
        return False


def call(method: str, url: str, body: Any = None) -> Any:
    """One command of the protocol; answers its value."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as wrong:
        raise AssertionError(f"{method} {url}: {wrong.read().decode(errors='replace')}") from None
