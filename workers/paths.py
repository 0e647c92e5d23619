"""Which paths lead to a file of the workspace: relative, plain, readable. Asked where the file is written or read.

The door lets any readable path pass: whether it leads out is a question about the workspace, and its answer is a failed
step with a path in the plan, like that of a path which a link leads out.
"""

import unicodedata
from collections.abc import Iterable
from typing import Final

from pydantic import TypeAdapter, ValidationError

from orchestrator.admission import WorkspacePath

PATH_BYTES: Final = 1024
NAME_BYTES: Final = 255  # what file systems take for one name

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
    """The protected name that one of these parts spells, by what file systems that fold names take for the same."""
    named = {_folded(name): name for name in protected}
    return next((named[_folded(part)] for part in parts if _folded(part) in named), None)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().rstrip(". ")


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
