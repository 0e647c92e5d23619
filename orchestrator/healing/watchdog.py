"""systemd's watchdog, told as long as the process is alive, as in sd_notify(3). Elsewhere nothing happens."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

SOCKET: Final = "NOTIFY_SOCKET"


class Watchdog:
    """Tells whoever started this process, if that wants to be told."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get(SOCKET, "")

    def ready(self) -> None:
        """The process works from here on."""
        self._say(b"READY=1")

    def alive(self) -> None:
        """It is alive."""
        self._say(b"WATCHDOG=1")

    def _say(self, word: bytes) -> None:
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.sendto(word, address)
