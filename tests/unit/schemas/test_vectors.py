"""The golden vectors were computed by Node.js (tests/support/vectors.mjs); ours must be the same."""

import json
import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from schemas.canonical import canonical_bytes, canonical_text, hash_of, parse_json, sha256_hex
from schemas.ids import run_id_for, session_key, step_token
from schemas.policy import Policy, PolicyRequest, meet, policy_hash, policy_text

VECTORS = Path(__file__).parent / "vectors"
SCRIPT = Path(__file__).parents[2] / "support" / "vectors.mjs"

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js: apt install nodejs")


def vectors(name: str) -> list[Any]:
    found = json.loads((VECTORS / f"{name}.json").read_text("utf-8"))
    return [pytest.param(vector, id=vector["name"]) for vector in found]


@pytest.mark.parametrize("vector", vectors("canonical"))
def test_canonical_text_and_hash(vector: dict[str, str]) -> None:
    value = parse_json(vector["text"], max_bytes=10_000)
    assert canonical_text(value) == vector["canonical"]
    assert canonical_bytes(value) == vector["canonical"].encode()
    assert hash_of(value) == sha256_hex(vector["canonical"]) == vector["sha256"]


@pytest.mark.parametrize("vector", vectors("runs"))
def test_run_ids(vector: dict[str, Any]) -> None:
    principal, session, request = vector["principal"], vector["session_id"], vector["request_id"]
    assert run_id_for(principal, session, request) == vector["run_id"]
    assert session_key(session) == vector["session_key"]


@pytest.mark.parametrize("vector", vectors("tokens"))
def test_step_tokens(vector: dict[str, Any]) -> None:
    params = parse_json(vector["params"], max_bytes=10_000)
    assert step_token(vector["plan_id"], vector["index"], vector["action"], params) == vector["token"]


@pytest.mark.parametrize("vector", vectors("policies"))
def test_policy_hashes(vector: dict[str, Any]) -> None:
    request = PolicyRequest.model_validate_json(json.dumps(vector["request"]))
    policy = meet(Policy(), request, "request")
    assert policy_text(policy) == vector["canonical"]
    assert policy_hash(policy) == vector["policy_hash"]
    assert Policy.model_validate_json(policy_text(policy)) == policy


@pytest.mark.may_skip
@needs_node
def test_another_language_agrees_with_every_vector() -> None:
    said = node(str(VECTORS))
    assert (said.returncode, said.stdout) == (0, "")


@pytest.mark.may_skip
@needs_node
def test_another_language_spells_random_doubles_the_same_way() -> None:
    chance = random.Random(8785)
    doubles = [bits for bits in (chance.randbytes(8) for _ in range(5_000)) if is_canonical(bits)]
    said = node("--numbers", stdin="\n".join(bits.hex() for bits in doubles))
    assert said.stdout.split() == [canonical_text(as_double(bits)) for bits in doubles]


def is_canonical(bits: bytes) -> bool:
    """Neither NaN nor infinite, nor one of the whole numbers that are refused because they read back as integers."""
    value = abs(as_double(bits))
    return value < 2**53 or 1e21 <= value < float("inf")


def as_double(bits: bytes) -> float:
    value: float = struct.unpack(">d", bits)[0]
    return value


def node(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = ["node", str(SCRIPT), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, encoding="utf-8", timeout=60, check=False)
