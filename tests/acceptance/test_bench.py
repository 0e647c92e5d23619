"""The bench runs from a shell that points elsewhere, and says what it found."""

import json
import subprocess
import sys

import pytest

from tests.support.environment import ROOT, clean_environment

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
