"""Types for the fields of params models: what a plan may put there beyond what pydantic knows.

    Annotated[int, Referable]     a plan may name an earlier step's result instead of a value
    WorkspacePath                 a path without control, bidirectional and invisible characters
    CommandLine                   a command without NUL and without characters that reorder what a reader sees
    PlainUUID                     a UUID in its 36-character form, nothing else that `uuid.UUID` would read

The checks run wherever the model is validated, so a value that arrives through a reference meets them too.
"""

import re
import unicodedata
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from schemas.ids import PLAN_ID

NAME_ERROR: Final = "name"
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# letters, marks and unassigned characters that are drawn as nothing: what Unicode calls default ignorable, and a blank
_DRAWN_AS_NOTHING: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
_REORDERING: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Referable:
    """Marks a top-level field of a params model: `{"$result": step, "path": pointer}` may stand in for its value."""


def _readable_path(path: str) -> str:
    if _DRAWN_AS_NOTHING.search(path) or any(unicodedata.category(char) in _HIDDEN_CATEGORIES for char in path):
        raise PydanticCustomError(NAME_ERROR, "a path may not hold control, bidirectional or invisible characters")
    return path


def _readable_command(command: str) -> str:
    if "\0" in command:
        raise PydanticCustomError(NAME_ERROR, "a command may not hold a NUL character")
    if _REORDERING.search(command):
        raise PydanticCustomError(NAME_ERROR, "a command may not hold characters that change the order of reading")
    return command


def _plain_uuid(value: Any) -> Any:
    if isinstance(value, str) and PLAN_ID.fullmatch(value) is None:
        raise ValueError("not a UUID in its 36-character form")
    return UUID(value) if isinstance(value, str) else value


WorkspacePath = Annotated[str, Field(min_length=1), AfterValidator(_readable_path)]
CommandLine = Annotated[str, Field(min_length=1), AfterValidator(_readable_command)]
PlainUUID = Annotated[UUID, BeforeValidator(_plain_uuid, json_schema_input_type=UUID)]
