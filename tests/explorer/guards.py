"""Every guard of the scripts and of their libraries, read from their text: each condition of an `if`, and each
comparison that decides outside of one.

Each is taken away once, as if it never held, and each comparison once more, as if it always held: of who holds a claim
that would let everybody in. Where it is missed then, `missed.py` says.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import pytest

from orchestrator.store import scripts
from orchestrator.store.scripts import LIBS

DECIDES: Final = re.compile(r"^\s*(?:else)?if (.*?) then\b")
COMPARES: Final = re.compile(
    r"""(  [#]?[\w.]+ (?:\((?:[^()]|\([^()]*\))*\))? (?:\[[^]]*\])? (?:\s-\s[\w.]+)?  # a field, a call
    \s(?:==|~=|<=|>=|<|>)\s
    (?:'[^']*'|[\w.]+ (?:\((?:[^()]|\([^()]*\))*\))? (?:\s\+\s\w+)?) )""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Guard:
    """A condition. nth: of those that read the same in one script; line, start, end: where it stands; always: taken
    away as if it always held.
    """

    script: str
    condition: str
    nth: int
    line: int
    start: int
    end: int
    always: bool

    def __str__(self) -> str:
        return f"{self.script}: {self.named}{' always' if self.always else ''}"

    @property
    def named(self) -> str:
        """As its script knows it."""
        return self.condition + (f" ({self.nth})" if self.nth > 1 else "")

    @contextmanager
    def away(self) -> Iterator[None]:
        """It never holds, or always does."""
        lines = _text(self.script).split("\n")
        instead = "true" if self.always else "false"
        lines[self.line] = f"{lines[self.line][: self.start]}{instead}{lines[self.line][self.end :]}"
        texts, libs = _texts(), {name: _text(name) for name in LIBS}
        (libs if self.script in libs else texts)[self.script] = "\n".join(lines)
        mutated = {name: scripts.parse(name, text, libs) for name, text in texts.items()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scripts, "load", lambda: mutated)
            yield


def guards() -> Iterator[Guard]:
    """All there are."""
    for script in (*sorted(_texts()), *LIBS):
        seen = dict[str, int]()
        for number, line in enumerate(_text(script).split("\n")):
            for found in _in(line.partition("--")[0]):
                condition = found[1]
                seen[condition] = seen.get(condition, 0) + 1
                for always in (False,) if found.re is DECIDES else (False, True):
                    yield Guard(script, condition, seen[condition], number, *found.span(1), always)


def unread() -> list[str]:
    """Lines with an `if` that is not read as a guard: it does not begin its line, or goes on in the next."""
    lines = [line.partition("--")[0] for name in (*_texts(), *LIBS) for line in _text(name).split("\n")]
    return [line for line in lines if len(re.findall(r"\b(?:else)?if\b", line)) != bool(DECIDES.match(line))]


def _in(line: str) -> Iterator[re.Match[str]]:
    decides = DECIDES.match(line)
    if decides:
        yield decides
    yield from COMPARES.finditer(line, decides.end() if decides else 0)


def _text(name: str) -> str:
    folder = files("orchestrator.store") / "lua"
    return ((folder / "lib" if name in LIBS else folder) / f"{name}.lua").read_text()


def _texts() -> dict[str, str]:
    folder = files("orchestrator.store") / "lua"
    return {entry.name[:-4]: entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".lua")}
