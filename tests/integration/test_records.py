"""mutate_record: change, before-image and proof in one transaction, whoever else is at it."""

import json
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NoReturn

import pytest
import structlog
from pydantic import ValidationError
from sqlalchemy import select, update

from orchestrator.ledger import AlreadyLanded, Fresh, Ledger, open_ledger
from orchestrator.ledger.effect_row import Kind
from orchestrator.ledger.tables import effects
from orchestrator.ledger.tables import records as records_table
from schemas.policy import Policy
from schemas.states import EffectClass
from tests.support.crowd import Crowd, crowd_of
from tests.support.waiting import eventually
from workers.actions import records
from workers.actions.records import (
    MutateRecord,
    OtherVersion,
    RecordChangedSince,
    RecordMutated,
    RecordTooDeep,
    RecordTooLarge,
    mutate_record,
    restore_record,
    shape,
)
from workers.context import Context, Services, StepIdentity
from workers.effects import AttemptEffect, EffectName
from workers.outcomes import AlreadyApplied, LeaseLost

BOX = "9c1f0a52-7d3e-4b88-a6f4-2e5d7c8b9a01"
BOXES = tuple(f"{number:08d}-7d3e-4b88-a6f4-2e5d7c8b9a01" for number in range(10))
TOKEN = "step:plan:0:hash"
opened = cache(open_ledger)
perform: Callable[..., RecordMutated] = mutate_record


def context(ledger: Ledger, step_id: str, fence: int = 1, policy: Policy | None = None, kind: Kind = "do") -> Context:
    """What the action is handed, as far as it asks."""
    row = AttemptEffect(ledger, EffectName("r", step_id, fence, TOKEN, EffectClass.TRANSACTIONAL, kind), called)
    services = Services(
        workspace=never,
        scratch=never,
        result=never,
        effect=lambda connection, result: row.land_within(connection, result.model_dump_json() if result else "null"),
        check=lambda: None,
        ledger=lambda: ledger,
        log=structlog.get_logger,
    )
    return Context(StepIdentity("r", None, step_id, 1, fence, f"idem:r:{step_id}:0"), policy or Policy(), services)


def called(call: Callable[[], Any], *, about_effect: bool = False) -> Any:
    return call()


def never(*_: object) -> NoReturn:
    raise AssertionError("the action has no business there")


def change(
    ledger: Ledger, step_id: str, changes: dict[str, Any], fence: int = 1, at: int | None = None
) -> RecordMutated:
    params = MutateRecord(entity_id=BOX, changes=changes, expected_version=at)
    return perform(params, context(ledger, step_id, fence))


def undo(ledger: Ledger, step_id: str, changes: dict[str, Any], fence: int = 9) -> None:
    restore_record(MutateRecord(entity_id=BOX, changes=changes), None, context(ledger, step_id, fence, kind="undo"))


def version(ledger: Ledger) -> int:
    record = ledger.record(BOX)
    return record.version if record else 0


def data(ledger: Ledger) -> Any:
    record = ledger.record(BOX)
    return json.loads(record.data_text) if record else None


def test_a_record_that_is_not_there_is_made(ledger: Ledger) -> None:
    assert change(ledger, "s1", {"lid": "open"}) == RecordMutated(entity_id=BOX, version_before=0, version_after=1)
    assert data(ledger) == {"lid": "open"}
    (made,) = ledger.record_changes("r")
    assert (made.step_id, made.entity_id, made.version_after, made.before_text) == ("s1", BOX, 1, None)


def test_keys_are_replaced_whole_and_null_is_a_value(ledger: Ledger) -> None:
    change(ledger, "s1", {"a": 1, "b": {"c": 2}, "d": [3]})
    result = change(ledger, "s2", {"a": None, "b": {}})
    assert (result.version_before, result.version_after) == (1, 2)
    assert data(ledger) == {"a": None, "b": {}, "d": [3]}
    assert ledger.record_changes("r")[1].before_text == '{"a":1,"b":{"c":2},"d":[3]}'


@pytest.mark.parametrize("fence", [1, 2])
def test_a_step_is_applied_once_and_a_repeat_gets_the_first_result(ledger: Ledger, fence: int) -> None:
    first = change(ledger, "s1", {"lid": "open"})
    with pytest.raises(AlreadyApplied) as again:
        change(ledger, "s1", {"lid": "shut"}, fence)
    assert RecordMutated.model_validate_json(again.value.result_text) == first
    assert data(ledger) == {"lid": "open"}
    assert len(ledger.record_changes("r")) == 1


def test_a_step_that_a_person_has_done_once_more_remembers_what_it_found_last(ledger: Ledger) -> None:
    change(ledger, "s1", {"lid": "open"})
    change(ledger, "s2", {"lid": "shut"})
    ledger.transactional.set_aside("r", ["s1"], ["s1"], 2)
    assert change(ledger, "s1", {"lid": "open"}, fence=3).version_after == 3
    assert [(made.step_id, made.before_text) for made in ledger.record_changes("r")] == [
        ("s2", '{"lid":"open"}'),
        ("s1", '{"lid":"shut"}'),
    ]


def test_a_claim_that_was_ended_changes_nothing(ledger: Ledger) -> None:
    ledger.effects.close("r", "s1", "do", 1)
    with pytest.raises(LeaseLost):
        change(ledger, "s1", {"lid": "open"})
    assert ledger.record(BOX) is None
    assert change(ledger, "s1", {"lid": "open"}, fence=2).version_after == 1


def test_the_proof_holds_the_result(ledger: Ledger) -> None:
    result = change(ledger, "s1", {"lid": "open"})
    assert ledger.effects.look("r", "s1", "do", 2, TOKEN) == AlreadyLanded(result.model_dump_json())


def test_an_error_after_the_proof_takes_it_back(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> NoReturn:
        raise OSError("the disk is full")

    monkeypatch.setattr(records, "write_change", broken)
    with pytest.raises(OSError, match="disk"):
        change(ledger, "s1", {"lid": "open"})
    assert ledger.record(BOX) is None
    assert ledger.effects.look("r", "s1", "do", 1, TOKEN) == Fresh()


def test_a_record_over_the_limit_is_refused_and_stays(ledger: Ledger) -> None:
    change(ledger, "s1", {"a": "x" * 600_000})
    with pytest.raises(RecordTooLarge, match="at most 1048576") as refused:
        change(ledger, "s2", {"b": "x" * 600_000})
    assert (refused.value.kind, refused.value.path) == ("record_too_large", "params.changes")
    assert list(data(ledger)) == ["a"]
    assert ledger.effects.look("r", "s2", "do", 1, TOKEN) == Fresh()


def test_the_limit_of_a_record_is_the_policys(ledger: Ledger) -> None:
    small = context(ledger, "s1", policy=Policy(record_bytes=9))
    with pytest.raises(RecordTooLarge, match=r"10 bytes, at most 9 .*record_bytes of the policy, MANDOR_RECORD_BYTES"):
        perform(MutateRecord(entity_id=BOX, changes={"a": "xy"}), small)
    perform(MutateRecord(entity_id=BOX, changes={"a": "x"}), small)
    assert data(ledger) == {"a": "x"}


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ({}, (0, 1)),
        ({"a": 1, "b": "{}"}, (2, 1)),
        ({"a": []}, (1, 2)),
        ({"a": [[{"b": {"c": None}}], {"d": 1}], "e": 2}, (5, 5)),
        ({"a": "x" * 10_000, "b": [1] * 10_000}, (2, 2)),
    ],
)
def test_keys_are_counted_at_every_depth_and_levels_of_objects_and_lists(
    record: dict[str, Any], found: tuple[int, int]
) -> None:
    assert shape(record) == found


def nested(levels: int) -> Any:
    return [] if levels == 1 else {"a": nested(levels - 1)}


def test_a_record_has_no_more_levels_than_the_policy_says(ledger: Ledger) -> None:
    of_three = context(ledger, "s1", policy=Policy(record_depth=3))
    with pytest.raises(RecordTooDeep, match=r"4 levels, at most 3 .*MANDOR_RECORD_DEPTH") as refused:
        perform(MutateRecord(entity_id=BOX, changes={"x": nested(3)}), of_three)
    assert (refused.value.kind, refused.value.path) == ("record_too_deep", "params.changes")
    assert refused.value.hint
    assert ledger.record(BOX) is None
    perform(MutateRecord(entity_id=BOX, changes={"x": nested(2)}), of_three)
    assert data(ledger) == {"x": {"a": []}}


def test_the_keys_that_were_there_count_too_and_those_that_were_replaced_do_not(ledger: Ledger) -> None:
    change(ledger, "s1", {"a": {"b": 1, "c": 2}, "d": 3})
    of_four = Policy(record_keys=4)
    with pytest.raises(RecordTooLarge, match=r"5 keys, at most 4 .*MANDOR_RECORD_KEYS"):
        perform(MutateRecord(entity_id=BOX, changes={"e": 4}), context(ledger, "s2", policy=of_four))
    perform(MutateRecord(entity_id=BOX, changes={"a": {}, "e": 4}), context(ledger, "s3", policy=of_four))
    assert data(ledger) == {"a": {}, "d": 3, "e": 4}


# ---- a version that is expected


def test_a_record_is_changed_at_the_version_that_is_expected_and_at_no_other(ledger: Ledger) -> None:
    made = change(ledger, "s1", {"lid": "open"}, at=0)
    change(ledger, "s2", {"lid": "shut"}, at=made.version_after)
    for step_id, stale in (("s3", 0), ("s4", 1), ("s5", 3)):
        with pytest.raises(OtherVersion, match=f"at version 2, the step expects {stale}") as refused:
            change(ledger, step_id, {"lid": "lost"}, at=stale)
        assert (refused.value.kind, refused.value.path) == ("other_version", "params.expected_version")
        assert ledger.effects.look("r", step_id, "do", 1, TOKEN) == Fresh()
    assert data(ledger) == {"lid": "shut"}
    assert [made.step_id for made in ledger.record_changes("r")] == ["s1", "s2"]


def test_a_record_that_was_expected_and_is_not_there_is_not_made(ledger: Ledger) -> None:
    with pytest.raises(OtherVersion, match="at version 0"):
        change(ledger, "s1", {"lid": "open"}, at=1)
    assert ledger.record(BOX) is None


def test_a_repeat_gets_the_first_result_though_the_version_went_on(ledger: Ledger) -> None:
    first = change(ledger, "s1", {"lid": "open"}, at=0)
    change(ledger, "s2", {"lid": "shut"})
    with pytest.raises(AlreadyApplied) as again:
        change(ledger, "s1", {"lid": "open"}, fence=2, at=0)
    assert RecordMutated.model_validate_json(again.value.result_text) == first


@pytest.mark.parametrize("wrong", [-1, 1.0, "1", True, 2**53])
def test_an_expected_version_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="expected_version"):
        MutateRecord.model_validate_json(json.dumps({"entity_id": BOX, "changes": {}, "expected_version": wrong}))


# ---- undone


def test_what_somebody_changed_by_hand_is_left_though_its_version_is_the_same(ledger: Ledger) -> None:
    change(ledger, "s1", {"lid": "open"})
    with ledger.begin() as connection:
        connection.execute(update(records_table).values(data_text='{"lid": "mended"}'))
    with pytest.raises(RecordChangedSince, match="has not the content of version 1") as refused:
        undo(ledger, "s1", {"lid": "open"})
    assert (refused.value.kind, refused.value.path) == ("record_changed_since", "params.entity_id")
    assert data(ledger) == {"lid": "mended"}
    assert ledger.effects.look("r", "s1", "undo", 9, TOKEN) == Fresh()


def test_the_spelling_of_a_record_is_no_change_of_it(ledger: Ledger) -> None:
    change(ledger, "s1", {"b": [1, {}], "a": 1})
    with ledger.begin() as connection:
        connection.execute(update(records_table).values(data_text='{ "a": 1, "b": [ 1, {} ] }'))
    undo(ledger, "s1", {"b": [1, {}], "a": 1})
    assert data(ledger) == {}


# ---- keys

HOSTILE: list[dict[str, Any]] = [
    {"__proto__": {"isAdmin": True}, "__class__": {"__init__": {}}, "_sa_instance_state": 1},
    {"$set": {"role": "admin"}, "$where": "1", "a.b": 1, "a[0]": 2, "$.a": 3, "/a/0": 4, "a->>'b'": 5},
    {"constructor": {"prototype": {"isAdmin": True}}, "tenant_id": "other", "created_at": 0, "owner": "root"},
    {"%(name)s": "%s", ":name": "?", "{{ 7*7 }}": "${7*7}", "': {\"": "\\"},
    {"count": "NaN", "tags": {"0": "x", "length": 1}, "active": "false", "p": {"py/object": "os.system"}},
    {"status='x', role='admin' --": "y", "name": "x'); DROP TABLE records; --"},
    {"id": "other", "entity_id": "other", "version": 0, "updated_at": 0},
    {"name": "a", "Name": "b", "name ": "c", "na\u0301me": "d", "n\u00e1me": "e", "": "f"},
    {"a\r\nDEL records\r\n": "b\x00c", "counter": 9007199254740993, "ratio": 0.1},
]


def test_keys_and_values_are_data_and_nothing_else(ledger: Ledger) -> None:
    for box, changes in zip(BOXES, HOSTILE, strict=False):
        params = MutateRecord.model_validate_json(json.dumps({"entity_id": box, "changes": changes}))
        result = perform(params, context(ledger, f"s{box[7]}"))
        record = ledger.record(box)
        assert record is not None
        assert json.loads(record.data_text) == changes
        assert (record.version, result.entity_id, result.version_after) == (1, box, 1)
    assert len(HOSTILE) <= len(BOXES)
    assert len(ledger.record_changes("r")) == len(HOSTILE)


def test_one_uuid_is_one_record(ledger: Ledger) -> None:
    params = MutateRecord.model_validate_json(json.dumps({"entity_id": BOX.upper(), "changes": {"lid": "open"}}))
    assert params.entity_id == BOX
    perform(params, context(ledger, "s1"))
    assert data(ledger) == {"lid": "open"}


@pytest.mark.parametrize(
    ("params", "where"),
    [
        ({"entity_id": BOX.replace("-", ""), "changes": {}}, "entity_id"),
        ({"entity_id": f"urn:uuid:{BOX}", "changes": {}}, "entity_id"),
        ({"entity_id": f"{BOX}\n", "changes": {}}, "entity_id"),
        ({"entity_id": 7, "changes": {}}, "entity_id"),
        ({"entity_id": BOX, "changes": [{"op": "replace", "path": "/a", "value": 1}]}, "changes"),
        ({"entity_id": BOX}, "changes"),
        ({"entity_id": BOX, "changes": {}, "upsert": True}, "upsert"),
    ],
)
def test_what_is_no_change_is_refused_by_name(params: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError) as refused:
        MutateRecord.model_validate_json(json.dumps(params))
    assert refused.value.errors()[0]["loc"] == (where,)


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    with crowd_of(4) as crowd:
        yield crowd


def change_often(index: int, url: str) -> None:
    for number in range(10):
        change(opened(url), f"s{index}-{number}", {f"p{index}": number})


def test_steps_that_change_one_record_at_once_lose_nothing(crowd: Crowd, ledger: Ledger, ledger_url: str) -> None:
    crowd.do(change_often, ledger_url)
    assert data(ledger) == {f"p{index}": 9 for index in range(4)}
    assert sorted(made.version_after for made in ledger.record_changes("r")) == list(range(1, 41))


def change_same(index: int, url: str) -> list[str]:
    change_as = partial(change, opened(url), changes={"by": index}, fence=index + 1)
    return [once(partial(change_as, f"s{number}")) for number in range(10)]


def once(apply: Callable[[], RecordMutated]) -> str:
    """The result that stands, from whichever attempt."""
    try:
        return apply().model_dump_json()
    except AlreadyApplied as before:
        return before.result_text


def test_one_step_attempted_at_once_is_applied_once(crowd: Crowd, ledger: Ledger, ledger_url: str) -> None:
    answers = crowd.do(change_same, ledger_url)
    assert all(answer == answers[0] for answer in answers)
    assert [made.version_after for made in ledger.record_changes("r")] == list(range(1, 11))
    with ledger.begin() as connection:
        assert {row.state for row in connection.execute(select(effects))} == {"landed"}


def test_threads_that_do_one_step_under_one_fence_apply_it_once(ledger: Ledger) -> None:
    """A message that was delivered several times, to workers that all believe they hold the claim."""
    answers: list[str] = []
    together = threading.Barrier(8)

    def attempt() -> None:
        together.wait(30)
        answers.append(once(lambda: change(ledger, "s1", {"lid": "open"})))

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [json.loads(answer)["version_after"] for answer in answers] == [1] * 8
    assert [made.version_after for made in ledger.record_changes("r")] == [1]


def change_expecting(index: int, url: str) -> list[int]:
    """The rounds that this one won: each change expects the version that the last round left."""
    ledger, won = opened(url), []
    for number in range(10):
        eventually(lambda wanted=number: version(ledger) >= wanted)  # type: ignore[misc]
        try:
            change(ledger, f"s{index}-{number}", {"by": index}, at=number)
            won.append(number)
        except OtherVersion:
            continue
    return won


def test_of_steps_that_expect_one_version_at_once_one_has_it(crowd: Crowd, ledger: Ledger, ledger_url: str) -> None:
    won = crowd.do(change_expecting, ledger_url)
    assert sorted(number for rounds in won for number in rounds) == list(range(10))
    assert [made.version_after for made in ledger.record_changes("r")] == list(range(1, 11))


def undo_or_change(index: int, url: str) -> list[str]:
    ledger, said = opened(url), []
    for number, box in enumerate(BOXES):
        params, step_id = MutateRecord(entity_id=box, changes={"lid": "open"}), f"s{number}"
        try:
            if index:
                other = MutateRecord(entity_id=box, changes={f"by{index}": index})
                perform(other, context(ledger, f"other{index}-{number}"))
            else:
                restore_record(params, None, context(ledger, step_id, 9, kind="undo"))
            said.append("done")
        except RecordChangedSince:
            said.append("left")
    return said


def test_an_undo_that_meets_changes_restores_before_them_or_not_at_all(
    crowd: Crowd, ledger: Ledger, ledger_url: str
) -> None:
    for number, box in enumerate(BOXES):
        perform(MutateRecord(entity_id=box, changes={"lid": "open"}), context(ledger, f"s{number}"))
    undone, *others = crowd.do(undo_or_change, ledger_url)
    assert all(said == ["done"] * len(BOXES) for said in others)
    for box, said in zip(BOXES, undone, strict=True):
        record = ledger.record(box)
        assert record is not None
        content = {} if said == "done" else {"lid": "open"}
        assert json.loads(record.data_text) == {**content, "by1": 1, "by2": 2, "by3": 3}
        assert record.version == 4 + (said == "done")
