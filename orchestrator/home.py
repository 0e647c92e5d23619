"""What the home folder says about its installation: whether it has a server of its own, and where that listens; and
where the files of a run lie.

`mandor up` makes that server when no other is named. From then on every process with the same home finds it there
without being told, and no password has to be carried from one terminal to the next.
"""

import hashlib
import hmac
from pathlib import Path
from typing import Final

SERVER_FOLDER: Final = "server"
SERVER_CONFIG: Final = "server.conf"
SERVER_HOST: Final = "127.0.0.1"
WORKSPACES: Final = "workspaces"
WORKSPACE_KEY: Final = "workspace.key"  # makes the names of workspaces unguessable


def make_private(folder: Path) -> None:
    """Make it, and what is missing above it, for its own user alone, whatever the umask; others keep their mode."""
    if folder.is_dir():
        return
    make_private(folder.parent)
    try:
        folder.mkdir(mode=0o700)
        folder.chmod(0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise


def server_folder(home: Path) -> Path:
    """The folder of the embedded server, there or not."""
    return home / SERVER_FOLDER


def server_address(folder: Path) -> tuple[int, str] | None:
    """Port and password of the server as it was last started in this folder; None if none ever was."""
    try:
        lines = (folder / SERVER_CONFIG).read_text(encoding="ascii").splitlines()
        fields = dict(line.split(" ", 1) for line in lines)
        return int(fields["port"]), fields["requirepass"]
    except (OSError, ValueError, KeyError):
        return None


def server_url(port: int, password: str) -> str:
    """As Celery, kombu and redis-py read it."""
    return f"redis://:{password}@{SERVER_HOST}:{port}/0"


def embedded_url(home: Path) -> str | None:
    """The address of this home's own server; None if it never had one."""
    found = server_address(server_folder(home))
    return server_url(*found) if found else None


def workspace_folder(home: Path, key: bytes, run_id: str) -> Path:
    """The folder of a run's workspace, there or not."""
    return home / WORKSPACES / hmac.new(key, run_id.encode(), hashlib.sha256).hexdigest()[:40]


def has_workspace(home: Path, run_id: str) -> bool:
    """Whether a run's workspace is in this home."""
    try:
        key = (home / WORKSPACE_KEY).read_bytes()
    except FileNotFoundError:
        return False
    return workspace_folder(home, key, run_id).is_dir()
