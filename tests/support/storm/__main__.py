"""Blows one storm, and says what came of it: a certificate for people, or JSON. Exit 1 if something does not hold."""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orchestrator.errors import MandorError
from orchestrator.local.interrupts import Interrupts
from workers.faults import report
from workers.faults.driven import Driven
from workers.faults.installation import HASTE, Installation, temporary_home
from workers.faults.report import Outcome, Report

if TYPE_CHECKING:
    from workers.faults.floor import Floor

ACTIONS: Final = "workers.faults.example,tests.support.storm.actions"
LEASE_S, SWEEP_S = 5.0, 1.0
SLOTS: Final = 4  # of each of the two step workers
# Nothing may be given up for want of attempts. A lease is long enough for a supervisor on a busy machine, which is not
# to look through some hundred open runs every second either.
SETTINGS: Final = {
    **HASTE,
    "lease_s": LEASE_S,
    "sweep_s": SWEEP_S,
    "dispatch_check_s": 2,
    "audit_s": 15,
    "attempts": 20,
    "planner_attempts": 20,
    "log_level": "WARNING",
}
TITLE: Final = "a storm"
LINES: Final = 30  # of each process, where something does not hold
READY_S: Final = 300.0  # for whatever is waited for before and after


def main(arguments: Sequence[str]) -> int:
    """Blow, judge, tell."""
    given = _read(arguments)
    print(f"seed {given.seed}", file=sys.stderr, flush=True)  # noqa: T201
    interrupts = Interrupts()
    interrupts.install()
    with (
        temporary_home(interrupts, keep=given.keep) as home,
        Installation(home, f"{ACTIONS},{given.also}".rstrip(","), interrupts, SETTINGS, SLOTS) as installation,
    ):
        floor = installation.start(Driven())
        floor.patience_s = READY_S
        outcome, figures = _outcome(floor, given.seed, given.runs)
        if not outcome.passed:
            print("\n".join(_last_words(home / "logs")), file=sys.stderr)  # noqa: T201
    bound_ms = round(1000 * (LEASE_S + 2 * SWEEP_S))
    told = Report(given.seed, f"{given.runs} runs in a storm", bound_ms, (outcome,))
    print("\n".join([report.line(outcome), *report.wrong(outcome), *report.text(told)]), file=sys.stderr)  # noqa: T201
    if given.json:
        print(json.dumps({**report.as_json(told), "storm": figures}))  # noqa: T201
    return 0 if told.passed else 1


def _last_words(logs: Path) -> Iterator[str]:
    """What each process printed last."""
    for path in sorted(logs.iterdir()):
        yield f"== {path.stem}"
        yield from path.read_text(encoding="utf-8", errors="replace").splitlines()[-LINES:]


def _read(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.storm", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="draw what an earlier storm drew")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--also", default="", metavar="MODULES", help="loaded by workers too: one may take guards away")
    parser.add_argument("--json", action="store_true", help="also for programs, on the standard output")
    parser.add_argument("--keep", action="store_true", help="keep ledger, log of effects and what processes printed")
    return parser.parse_args(arguments)


def _outcome(floor: "Floor", seed: int, runs: int) -> tuple[Outcome, dict[str, Any]]:
    from tests.support.storm import judging
    from tests.support.storm.forecast import forecast
    from tests.support.storm.weather import Weather

    judging.rehearse(floor, seed)
    weather, began = Weather(floor, forecast(seed, runs)), time.monotonic()
    try:
        weather.blow()
        weather.calm_down()
        weather.harm_in_calm(SLOTS)
        weather.calm_down()
    except MandorError as wrong:
        return Outcome("storm", TITLE, time.monotonic() - began, error=f"{wrong.kind}: {wrong.message}"), {}
    return judging.judge(weather, TITLE, time.monotonic() - began)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
