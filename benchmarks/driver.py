"""Drives one side from a process with that side's environment: a width a line comes in, seconds a line go out."""

import os
import sys
from pathlib import Path

from benchmarks.sides import Mandor
from benchmarks.tally import VARIABLE, Tally


def main() -> None:
    """Until standard input ends."""
    side = Mandor(Tally(Path(os.environ[VARIABLE])))
    for line in sys.stdin:
        print(side.fan_out(int(line)).seconds, flush=True)


if __name__ == "__main__":
    main()
