"""docs/settings.md shows every setting as the code has it, and says why."""

import re
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from orchestrator.settings import Settings, _broken, env_name

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
ROW = re.compile(r"^\| `(MANDOR_\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def shown(value: Any) -> str:
    """A default as the page writes it."""
    plain = value.get_secret_value() if isinstance(value, SecretStr) else value
    if plain in (None, ""):
        return "none"
    if isinstance(plain, bool):
        return f"`{str(plain).lower()}`"
    return f"`{plain:g}`" if isinstance(plain, float) else f"`{plain}`"


def settings_rows() -> dict[str, tuple[str, str]]:
    """Name to default and description."""
    fields = Settings.model_fields
    return {env_name(name): (shown(info.default), info.description or "") for name, info in fields.items()}


def page_rows() -> dict[str, tuple[str, str, str]]:
    """Name to default, description and reason."""
    return {found[1]: (found[2], found[3], found[4]) for found in ROW.finditer(PAGE.read_text())}


def test_every_setting_has_a_description() -> None:
    assert [name for name, (_, description) in settings_rows().items() if not description] == []


def test_the_page_has_every_setting_with_its_default_and_description() -> None:
    assert {name: row[:2] for name, row in page_rows().items()} == settings_rows()


def test_every_default_has_a_reason() -> None:
    assert [name for name, row in page_rows().items() if not row[2].strip()] == []


def test_all_that_must_fit_together_is_on_the_page() -> None:
    given = Settings.model_construct(sweep_s=1e6, backoff_s=1e6, finished_ttl_s=1e9, timeout_s=1e6)
    broken = list(_broken(given))
    assert len(broken) >= 5
    rules = PAGE.read_text().split("## What must fit together")[1]
    for one in broken:
        names = (env_name(one.field), *one.other.split(", "))
        assert any(all(f"`{name}`" in line for name in names) for line in rules.splitlines()), str(one)


def test_every_variable_that_is_named_anywhere_in_the_docs_exists() -> None:
    pages = [PAGE.parents[1] / "README.md", *PAGE.parent.rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"\bMANDOR_[A-Z_]+[A-Z]\b", page.read_text())}
    assert named - set(settings_rows()) - {"MANDOR_LLM"} == set()
