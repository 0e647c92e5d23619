"""Keeps the log of effects: what steps say they did, numbered in the order in which it was heard.

A program of its own, run with nothing but the standard library, so that no fault of a worker's process reaches it. It
reads lines of JSON from a named pipe, where each is written whole, and adds a number and its own time of day.

    python witness.py PIPE LOG
"""

import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO

READY = "witness.ready"


def keep(lines: Iterable[bytes], log: IO[bytes]) -> None:
    """Write each line down, numbered from 1."""
    for number, line in enumerate(lines, 1):
        told = {**json.loads(line), "number": number, "at": time.time_ns() // 1_000_000}
        log.write(json.dumps(told).encode() + b"\n")


def main(pipe: str, log: str) -> None:
    """Listen until this process is ended."""
    descriptor = os.open(pipe, os.O_RDWR)  # also for writing, so that it never comes to an end
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    with os.fdopen(descriptor, "rb", buffering=0) as lines, Path(log).open("ab", buffering=0) as file:
        keep(iter(lines.readline, b""), file)


if __name__ == "__main__":
    main(*sys.argv[1:])
