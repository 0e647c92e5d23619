"""docs/states.md shows the machine's table as it is."""

from pathlib import Path

from orchestrator.machine import RUN_RULES, STEP_RULES, UNDO_RULES, Rule

PAGE = Path(__file__).parents[2] / "docs" / "states.md"


def row(rule: Rule) -> str:
    return f"| {rule.state} | {rule.event} | {rule.guard} | {rule.after or ''} | {rule.reply} |"


def table(rules: tuple[Rule, ...]) -> str:
    return "\n".join(row(rule) for rule in rules)


def test_the_page_has_every_rule_in_the_tables_order() -> None:
    text = PAGE.read_text()
    for rules in (RUN_RULES, STEP_RULES, UNDO_RULES):
        missing = [row(rule) for rule in rules if row(rule) not in text]
        assert not missing, "docs/states.md lacks:\n" + "\n".join(missing)
        assert table(rules) in text


def test_the_page_has_no_rule_that_does_not_exist() -> None:
    shown = [line for line in PAGE.read_text().splitlines() if line.count(" | ") == 4 and "event" not in line]
    assert sorted(shown) == sorted(row(rule) for rule in (*RUN_RULES, *STEP_RULES, *UNDO_RULES))
