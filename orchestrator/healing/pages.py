"""The pages of a process: /livez, /readyz, /health and /metrics."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry, make_wsgi_app

from orchestrator.healing.checks import State
from orchestrator.healing.forks import GATE

Environ = dict[str, Any]
Start = Callable[..., Any]
Answer = tuple[str, dict[str, Any]]
OK: Final = "200 OK"
FAILING: Final = "503 Service Unavailable"
_JSON: Final = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]


@dataclass(frozen=True, slots=True)
class Pages:
    """live, ready: the states of a moment. registry: what /metrics shows; about: what
    /health says besides.
    """

    role: str
    live: Callable[[], Sequence[State]]
    ready: Callable[[], Sequence[State]]
    registry: CollectorRegistry
    about: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        """The WSGI application."""
        with GATE.inside():
            return self._answer(environ, start)

    def _answer(self, environ: Environ, start: Start) -> Iterable[bytes]:
        path, method = environ.get("PATH_INFO", "/"), environ.get("REQUEST_METHOD")
        if method not in ("GET", "HEAD"):
            return _json(start, "405 Method Not Allowed", {"error": "only GET and HEAD"}, environ)
        if path == "/metrics":
            return make_wsgi_app(self.registry)(environ, start)  # type: ignore[no-any-return]
        if path not in _PATHS:
            return _json(start, "404 Not Found", {"error": "not here", "pages": [*_PATHS, "/metrics"]}, environ)
        return _json(start, *self._health(path), environ)

    def _health(self, path: str) -> Answer:
        states = [*(self.live() if path != "/readyz" else ()), *(self.ready() if path != "/livez" else ())]
        failing = [state.as_json() for state in states if not state.ok]
        said: dict[str, Any] = {"status": "failing" if failing else "ok", "role": self.role}
        if failing:
            said["failing"] = failing
        if path == "/health":
            said["checks"] = [state.as_json() for state in states]
            said |= {"about": dict(self.about)} if self.about else {}
        return FAILING if failing else OK, said


_PATHS: Final = ("/livez", "/readyz", "/health")


def _json(start: Start, status: str, said: dict[str, Any], environ: Environ) -> Iterable[bytes]:
    body = json.dumps(said).encode() + b"\n"
    start(status, [*_JSON, ("Content-Length", str(len(body)))])
    return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]
