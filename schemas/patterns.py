"""Names of files that a policy keeps: relative paths, in which a star stands for any part of one name.

`out/*.pdf` is every such file in `out`; `out/**` is all that is below it. Two stars stand at the end only, so that a
path is held against a pattern name by name, whoever chose either.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Final

from pydantic import AfterValidator, Field

ALL: Final = "**"


def _plain(pattern: str) -> str:
    names = pattern.split("/")
    if any(name in {"", ".", ".."} for name in names):
        raise ValueError("a pattern is a relative path without empty names, '.' and '..'")
    if any(ALL in name for name in names[:-1]) or (ALL in names[-1] and names[-1] != ALL):
        raise ValueError("'**' stands alone, as the last name of a pattern")
    if not pattern.isprintable():
        raise ValueError("a pattern has printable characters only")
    return pattern


Pattern = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_plain)]


def matches(pattern: str, path: Sequence[str]) -> bool:
    """Whether a file is meant, by the names of its path."""
    wanted = pattern.split("/")
    if wanted[-1] == ALL:
        return len(path) >= len(wanted) and _each(wanted[:-1], path)
    return len(path) == len(wanted) and _each(wanted, path)


def leads_to(pattern: str, folder: Sequence[str]) -> bool:
    """Whether files below a folder may be meant."""
    wanted = pattern.split("/")
    if wanted[-1] == ALL:
        return _each(wanted[:-1], folder)
    return len(folder) < len(wanted) and _each(wanted, folder)


def _each(wanted: Sequence[str], names: Sequence[str]) -> bool:
    return all(map(fnmatchcase, names, wanted))
