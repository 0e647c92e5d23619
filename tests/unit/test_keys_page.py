"""docs/keys.md shows every key as orchestrator/store/keys.py has it."""

import re
from pathlib import Path

from orchestrator.store import keys
from orchestrator.store.replies import DUTIES

PAGE = Path(__file__).parents[2] / "docs" / "keys.md"


def rows(text: str) -> list[tuple[str, ...]]:
    """Key, type and what it holds of each line of the table of keys, without its marks."""
    table = text[text.index("| key ") :].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    cells = ([cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in table)
    return [(*line[:2], re.sub(r"\s+", " ", line[2])) for line in cells]


def test_the_page_has_the_table_of_the_code() -> None:
    assert rows(PAGE.read_text()) == rows(keys.__doc__ or "")


def test_every_part_is_in_it() -> None:
    named = " ".join(key for key, *_ in rows(PAGE.read_text()))
    parts = [*(f"…:{part}" for part in keys.RUN_PARTS), *keys.SHARD_PARTS]
    assert [part for part in parts if part not in named] == []


def test_every_duty_is_named() -> None:
    text = PAGE.read_text().split("The duties are")[1].split("\n\n")[0]
    assert [duty for duty in DUTIES if f"`{duty}`" not in text] == []


def test_what_lives_for_ever_is_what_the_code_says() -> None:
    forever = re.findall(r"^\| (.*?) \|.*\| for ever \|$", PAGE.read_text(), re.MULTILINE)
    named = {name for cell in forever for name in re.findall(r"`([^`]+)`", cell)}
    assert named == {*keys.SHARD_PARTS, "due:<duty>"}
