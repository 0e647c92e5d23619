"""A program that counts in forked children, kills them at random and folds what they leave, and says what came of it.

    python -m tests.support.counters FOLDER

A byte in a pipe for each count tells the parent how many there must be. Writes one JSON object.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from orchestrator.telemetry import counting

ROUNDS = 12
CHILDREN = 4


def total(files: counting.Files) -> float:
    """All that is counted now."""
    families = files.read().families
    return sum(value for family in families.values() for value in family.samples.values())


def child(counter: Any, tell: int) -> None:
    """Count until killed. The pipe is told after the count, so at most one count of a child is not told of."""
    while True:
        counter.inc()
        os.write(tell, b".")
        time.sleep(0.0005)


def main(folder: Path) -> None:
    files = counting.enter(folder)
    counter = Counter("t_total", "t", ["x"], registry=CollectorRegistry()).labels("a")
    counter.inc()
    told, seen, fell, most_files = 1, 0.0, 0, 0
    for _ in range(ROUNDS):
        hear, tell = os.pipe()
        pids = []
        for _ in range(CHILDREN):
            pid = os.fork()
            if pid == 0:
                os.close(hear)
                child(counter, tell)
            pids.append(pid)
        os.close(tell)
        for pid in random.sample(pids, len(pids)):
            time.sleep(random.uniform(0.001, 0.02))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            files.fold()
            now = total(files)
            fell += now < seen
            seen = now
            most_files = max(most_files, len(list(folder.iterdir())))
        while data := os.read(hear, 65_536):
            told += len(data)
        os.close(hear)
    sys.stdout.write(json.dumps({"told": told, "counted": total(files), "fell": fell, "files": most_files}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
