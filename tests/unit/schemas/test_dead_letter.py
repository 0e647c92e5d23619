"""Letters can always be written; bells always fit."""

import json
import random
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.dead_letter import BELL_BYTES, Bell, DeadLetter, DeadLetterKind, DeadLetterStatus
from schemas.ids import run_id_for

RUN = run_id_for("celery", "s", "r")


def letter(**fields: Any) -> DeadLetter:
    values = {
        "id": "l1",
        "kind": "step",
        "run_id": RUN,
        "step_id": "s0",
        "reason": "gave up",
        "created_at": 1_700_000_000_250,
    }
    return DeadLetter.model_validate(values | fields)


def sizes(bell: Bell) -> tuple[int, int]:
    """Bytes of the bell, written with and without escapes."""
    document = bell.model_dump(mode="json")
    return len(json.dumps(document)), len(json.dumps(document, ensure_ascii=False).encode())


@pytest.mark.parametrize("character", ["x", "é", "€", "😀", "\x00", '"', "\\", "\n", "\ud800"])
def test_a_bell_fits_whatever_the_reason_is_made_of(character: str) -> None:
    bell = letter(id="i" * 128, step_id="s" * 64, reason=character * 5000).bell()
    assert max(sizes(bell)) <= BELL_BYTES
    assert bell.reason.endswith("…")
    assert len(bell.reason) > 100


def test_a_bell_fits_for_mixed_reasons() -> None:
    chance = random.Random(1)
    for _ in range(200):
        reason = "".join(chance.choice('aé€😀\\"\x01\ud900') for _ in range(chance.randrange(3000)))
        bell = letter(id="i" * 128, step_id="s" * 64, reason=reason).bell()
        assert max(sizes(bell)) <= BELL_BYTES
        assert bell.reason.encode()


def test_a_short_reason_is_not_touched() -> None:
    bell = letter(reason="não — 😀").bell()
    assert bell.model_dump(mode="json") == {"id": "l1", "kind": "step", "run": RUN, "step": "s0", "reason": "não — 😀"}


def test_an_emoji_is_never_cut_in_two() -> None:
    reason = letter(reason="x" + "😀" * 1000).bell().reason
    assert set(reason) == {"x", "😀", "…"}


def test_words_of_the_database_are_taken_for_what_they_are() -> None:
    read = letter(kind="plan", status="replayed", run_id=None, step_id=None)
    assert (read.kind, read.status) == (DeadLetterKind.PLAN, DeadLetterStatus.REPLAYED)
    with pytest.raises(ValidationError):
        letter(kind="parcel")


def test_a_reason_can_always_be_written() -> None:
    assert letter(reason="bad \ud83d").reason == r"bad \ud83d"


def test_a_letter_without_its_content_is_what_lists_show() -> None:
    assert letter(content={"raw": "x"}).model_dump(mode="json", exclude={"content"}) == {
        "id": "l1",
        "kind": "step",
        "run_id": RUN,
        "step_id": "s0",
        "reason": "gave up",
        "created_at": "2023-11-14T22:13:20.250Z",
        "status": "open",
    }
    assert DeadLetter.model_validate_json(letter().model_dump_json()) == letter()
