"""Which paths lead to a file of the workspace: relative, plain, readable. Asked where the file is written or read.

The door lets any readable path pass: whether it leads out is a question about the workspace, and its answer is a failed
step with a path in the plan, like that of a path which a link leads out.
"""

import re
import unicodedata
from collections.abc import Iterable
from string import hexdigits
from typing import Final

from pydantic import TypeAdapter, ValidationError

from orchestrator.admission import WorkspacePath

PATH_BYTES: Final = 1024
NAME_BYTES: Final = 255  # what file systems take for one name

_SHORT: Final = re.compile(r"([^~]{1,6})~([0-9]{1,6})(?:\..{0,3})?")
_STEM: Final = 6  # letters before the ~ of such a name, at most

_readable: Final[TypeAdapter[str]] = TypeAdapter(WorkspacePath)


def path_parts(path: str) -> tuple[str, ...]:
    """The names a relative path is made of. ValueError says, without repeating the path, what is wrong with it."""
    try:
        _readable.validate_python(path, strict=True)
    except ValidationError as refusal:
        raise ValueError(refusal.errors()[0]["msg"]) from None
    _check_plain(path)
    return tuple(path.split("/"))


def protected_part(parts: Iterable[str], protected: Iterable[str]) -> str | None:
    """The protected name that one of these parts spells, by what some file system takes for the same."""
    named = {_folded(name): name for name in protected}
    for part in map(_folded, parts):
        if part in named:
            return named[part]
        if "~" in part and (meant := next((it for it in named if _is_short(part, it)), None)):
            return named[meant]
    return None


def _folded(name: str) -> str:
    """What is behind a colon names a stream of the file, which may be its contents."""
    return unicodedata.normalize("NFKC", name).casefold().partition(":")[0].rstrip(". ")


def _is_short(part: str, name: str) -> bool:
    """Whether it may be the second name, of eight letters at most, that some file systems give to what has this one:
    `git~1` for `.git`. Of many like it they number the last ones by four letters of a hash: `gi7eb8~1`.
    """
    if (found := _SHORT.fullmatch(part)) is None:
        return False
    plain = name.lstrip(".").replace(" ", "")
    letters = plain.rpartition(".")[0].replace(".", "") or plain
    stem, number = found.groups()
    hashed = len(stem) == _STEM and stem.startswith(letters[:2]) and set(stem[2:]) <= set(hexdigits)
    return stem == letters[: _STEM + 1 - len(number)] or hashed


def _check_plain(path: str) -> str:
    if path.startswith("/"):
        raise ValueError("the path must be relative to the workspace")
    if len(path.encode()) > PATH_BYTES:
        raise ValueError(f"the path is longer than {PATH_BYTES} bytes")
    for name in path.split("/"):
        _check_name(name)
    return path


def _check_name(name: str) -> None:
    if not name:
        raise ValueError("the path has an empty name: no '//' and no '/' at its end")
    if name in {".", ".."}:
        raise ValueError("the path may not contain '.' or '..'")
    if len(name.encode()) > NAME_BYTES:
        raise ValueError(f"a name in the path is longer than {NAME_BYTES} bytes")
