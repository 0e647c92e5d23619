"""The bench runs from a shell that points elsewhere, and says what it found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.faults.work import PARTS, WORLDS
from orchestrator.local import EmbeddedServer
from tests.support.environment import ROOT, clean_environment
from tests.support.waiting import eventually

ELSEWHERE = {"MANDOR_REDIS_URL": "redis://127.0.0.1:1/0", "CELERY_BROKER_URL": "redis://127.0.0.1:1/0", "APP": "other"}


@pytest.mark.full
def test_a_contest_is_held() -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--json", "sequence"]
    env = {**clean_environment(), **ELSEWHERE}
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["sequence"]
    low, high = found["ratio_to_bare_spread"]
    assert 0 < low <= found["ratio_to_bare"] <= high


@pytest.mark.soak
@pytest.mark.full
@pytest.mark.timeout(300)  # a busy machine kills and starts three dozen processes slowly
def test_the_same_harm_is_done_to_two_sides() -> None:
    """To those for which nothing has to be installed."""
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "--quick",
        "--json",
        "--side",
        "celery",
        "--side",
        "mandor",
        "faults",
    ]
    env = {**clean_environment(), **ELSEWHERE}
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["faults"]
    assert found["unplayed"] == []
    killed = {(side, world): found[side]["S1"][world] for side in ("celery", "mandor") for world in WORLDS}
    runs = killed["celery", "blind"]["runs"]
    # at least once, and a world that tells nothing: each effect whose process was killed is had again
    assert (killed["celery", "blind"]["doubled"], killed["celery", "asked"]["doubled"]) == (len(PARTS) * runs, 0)
    assert (killed["mandor", "blind"]["doubled"], killed["mandor", "blind"]["given_up"]) == (0, runs)
    for world in ("asked", "keyed"):
        assert (killed["mandor", world]["doubled"], killed["mandor", world]["given_up"]) == (0, 0)
    assert all(count["lost"] == count["stuck"] == count["wrong"] == 0 for count in killed.values())
    assert all(found["mandor"]["S8"][world]["doubled"] == 0 for world in WORLDS)
    assert found["celery"]["S8"]["blind"]["doubled"] > 0


def test_a_bench_that_is_killed_leaves_no_server(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "sequence"]
    env = {**clean_environment(), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
        try:
            # the first to be ready says so long after the last was started, and all are on the guardian's list
            eventually(
                lambda: any("service.ready" in log.read_text() for log in tmp_path.glob("*/*.log")),
                timeout_s=90,
                what="the first of the bench's processes that is ready",
            )
        finally:
            bench.kill()
    server = EmbeddedServer(next(tmp_path.glob("*/server")))
    eventually(lambda: not server.running(), timeout_s=60, what="the end of its server")
