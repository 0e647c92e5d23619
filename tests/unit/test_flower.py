"""Flower is never open: who may reach it, and who may come in."""

import stat
from pathlib import Path
from typing import Any

import pytest

from orchestrator import flower
from orchestrator.errors import ConfigError
from orchestrator.settings import Settings


def given(tmp_path: Path, **fields: Any) -> Settings:
    return Settings(home=tmp_path, **fields)


def test_a_password_is_made_once_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    first = flower.password(tmp_path / "home")
    again = flower.password(tmp_path / "home")
    assert (first.fresh, again.fresh) == (True, False)
    assert first.text == again.text
    assert len(first.text) >= 20
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "home").iterdir()] == [flower.PASSWORD_FILE]


def test_homes_have_passwords_of_their_own(tmp_path: Path) -> None:
    assert flower.password(tmp_path / "one").text != flower.password(tmp_path / "two").text


def test_a_fresh_password_is_told_and_a_known_one_is_not(tmp_path: Path) -> None:
    fresh, known = flower.password(tmp_path), flower.password(tmp_path)
    assert fresh.text in flower.introduction("http://x", fresh)
    assert fresh.text not in flower.introduction("http://x", known)


def test_a_password_that_others_may_read_is_refused(tmp_path: Path) -> None:
    flower.password(tmp_path).path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        flower.password(tmp_path)


def test_a_password_that_is_none_is_refused(tmp_path: Path) -> None:
    flower.password(tmp_path).path.write_text("\n")
    with pytest.raises(ConfigError, match="delete the file"):
        flower.password(tmp_path)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_may_always_reach_it(tmp_path: Path, address: str) -> None:
    flower.check(given(tmp_path, flower_address=address))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.5", "flower.example"])
def test_other_machines_only_if_somebody_says_so(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="MANDOR_FLOWER_PUBLIC"):
        flower.check(given(tmp_path, flower_address=address))
    flower.check(given(tmp_path, flower_address=address, flower_public=True))


def test_it_only_reads_and_remembers_within_bounds(tmp_path: Path) -> None:
    secret = flower.password(tmp_path)
    chosen = flower.chosen(given(tmp_path), secret)
    assert chosen["read_only"] is True
    assert chosen["basic_auth"] == [f"mandor:{secret.text}"]
    assert chosen["max_tasks"] <= 10_000
    assert chosen["persistent"] is False
