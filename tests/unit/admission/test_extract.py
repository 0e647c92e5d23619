"""From an answer to the one object in it."""

import pytest

from orchestrator.admission import PayloadDrift
from orchestrator.admission.extract import extract

OBJECT = '{"a": [1, {"b": "}"}]}'


@pytest.mark.parametrize(
    "answer",
    [
        f"```json\n{OBJECT}\n```",
        f"~~~\n{OBJECT}\n~~~",
        f"Sure:\n{OBJECT} Anything else?",
        f"`{OBJECT}`",
        f"```{OBJECT}```",
        f"\ufeff{OBJECT}",
        f"\ufeff<think>hm</think>\n{OBJECT}",
        f"<think>first {{}}</think> <reasoning>second</reasoning>{OBJECT}",
        f"<THINK mode='x'>draft {OBJECT}</THINK>{OBJECT}",
        f"[THINK]draft {OBJECT}[/THINK]{OBJECT}",
        f"no opening tag</think>{OBJECT}",
        f"a {{name}} and { {1} } before {OBJECT}",
        f"see [1] and [2]: {OBJECT}",
        f'the "plan" {OBJECT}',
        f"{OBJECT}}}",
        f"[plan] {OBJECT} [/plan]",
        f"[x]\n{OBJECT}\n]",
        f"the signs {{ and [ are open {OBJECT}]",
        f"[1] Plan\n{OBJECT}\n[2] That was it",
        f"as you asked [see below {OBJECT}]",
        f"x = [1]\n{OBJECT}",
    ],
)
def test_what_surrounds_the_object_is_passed_over(answer: str) -> None:
    found = extract(answer)
    assert found.text == OBJECT
    assert found.extracted


@pytest.mark.parametrize("answer", [OBJECT, f" \n\t{OBJECT}\r\n", "{}"])
def test_a_whole_answer_is_taken_as_it_is(answer: str) -> None:
    found = extract(answer)
    assert found.text == answer
    assert not found.extracted


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ("", "extraction", "no JSON object"),
        ("no plan today", "extraction", "no JSON object"),
        ("{", "extraction", "no JSON object"),
        (f"[{OBJECT}]", "extraction", "JSON list"),
        ('"text"', "extraction", "JSON string"),
        ("12", "extraction", "a number"),
        ("true", "extraction", "true or false"),
        ("null", "extraction", "null"),
        (f"x [{OBJECT}]", "extraction", "inside a list"),
        (f"x [\n\n {OBJECT}", "extraction", "inside a list"),
        (f"{{plan: {OBJECT}}}", "extraction", "inside a list or another object"),
        (f"```\n{{ plan = {OBJECT} }}\n```", "extraction", "inside a list or another object"),
        (f"<think>{{</think>[ // the plan\n{OBJECT}\n]", "extraction", "inside a list or another object"),
        (f"Here:\n  [ /* one */ {OBJECT} ] done", "extraction", "inside a list or another object"),
        (f"x = [None or {OBJECT}]", "extraction", "inside a list or another object"),
        (f"plans = run([None or {OBJECT}])", "extraction", "inside a list or another object"),
        (f"  return [dict() or {OBJECT}]", "extraction", "inside a list or another object"),
        (f"plans = {{plan: {OBJECT}}}", "extraction", "inside a list or another object"),
        (f"well, {OBJECT}", "extraction", "behind a comma"),
        (f"x '{OBJECT}'", "extraction", "inside a string"),
        (f'x "{OBJECT}"', "extraction", "inside a string"),
        (f'x "  {OBJECT}"', "extraction", "inside a string"),
        (f"x \u201c{OBJECT}\u201d", "extraction", "inside a string"),
        (f"{OBJECT}{OBJECT}", "extraction", "more than one"),
        (f"{OBJECT} or {{}}", "extraction", "more than one"),
        (f"{OBJECT} or {{ 'a': 1}}", "extraction", "more than one"),
        (f"<think>{OBJECT}", "extraction", "never closes"),
        (f"<think>{OBJECT}</thought>{OBJECT}", "extraction", "never closes"),
        (f"so <think>{OBJECT}</think>", "extraction", "not closed before"),
        (f"<think>a<think>b</think>{OBJECT}</think>{OBJECT}", "extraction", "more than one"),
        ('x {"a": [1, 2', "json", "line 1 column 3 never ends"),
        ('x\ny\n {"a": "b', "json", "line 3 column 2 never ends"),
        ('x {"a": 1,}', "json", "trailing comma"),
        ("x {'a': 1}", "json", "key must be a string"),
        ('x {"a": ]}', "json", "expected value"),
        ('{a: 1, "b": [{"c": 1}]}', "json", "column 2"),
        ('{"a": NaN}', "json", "expected value"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "depth", "too deeply"),
    ],
)
def test_what_is_no_single_object_is_refused(answer: str, kind: str, words: str) -> None:
    with pytest.raises(PayloadDrift) as caught:
        extract(answer)
    (issue,) = caught.value.issues
    assert (issue.path, issue.kind) == ("", kind)
    assert words in issue.message
