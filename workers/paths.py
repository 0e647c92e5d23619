"""Which paths an action may be given: relative, plain, readable. Pure; the params models use it at the door and again at work."""

import unicodedata
from typing import Annotated, Final

from pydantic import AfterValidator, Field

PATH_BYTES: Final = 1024
NAME_BYTES: Final = 255  # what file systems take for one name

# controls, invisible and bidirectional marks, lone surrogates, line and paragraph separators
_UNREADABLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def path_parts(path: str) -> tuple[str, ...]:
    """The names a relative path is made of. ValueError says, without repeating the path, what is wrong with it."""
    if not path:
        raise ValueError("the path is empty")
    if path.startswith("/"):
        raise ValueError("the path must be relative to the workspace")
    if any(unicodedata.category(char) in _UNREADABLE for char in path):
        raise ValueError("the path holds a control, invisible or bidirectional character")
    if len(path.encode()) > PATH_BYTES:
        raise ValueError(f"the path is longer than {PATH_BYTES} bytes")
    parts = tuple(path.split("/"))
    for part in parts:
        _check_name(part)
    return parts


def _check_name(name: str) -> None:
    if not name:
        raise ValueError("the path has an empty name: no '//' and no '/' at its end")
    if name in {".", ".."}:
        raise ValueError("the path may not contain '.' or '..'")
    if len(name.encode()) > NAME_BYTES:
        raise ValueError(f"a name in the path is longer than {NAME_BYTES} bytes")


def _checked(path: str) -> str:
    path_parts(path)
    return path


RelativePath = Annotated[str, Field(min_length=1, max_length=PATH_BYTES), AfterValidator(_checked)]
