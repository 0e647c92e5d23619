"""create_file: a text file in the run's own workspace."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.admission import Referable, WorkspacePath
from orchestrator.settings import env_name
from workers.context import Context
from workers.outcomes import NoEffect, PermanentError
from workers.registry import action
from workers.workspace import WorkspaceFault


class FileTooLarge(PermanentError, NoEffect):
    """The file would exceed the policy's limit; nothing was written."""

    kind = "file_too_large"


class LeftToWorkspace(PermanentError):
    """The file cannot be taken away by itself. Trying again may be of no use, and is not needed."""

    kind = "left_to_workspace"


class CreateFile(BaseModel):
    """path: relative to the workspace; folders on the way are made. content: UTF-8 text, written as it is."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    path: WorkspacePath = Field(min_length=1, description="relative path inside the run's workspace")
    content: Annotated[str, Referable] = Field(description="the whole text of the file")


class CreatedFile(BaseModel):
    """bytes: size of the file; sha256: hex digest of its bytes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    path: str
    bytes: int
    sha256: str


def written_path(params: CreateFile) -> str:
    """What two unordered steps may not both write."""
    return params.path


@action("create_file", effect="idempotent", exclusive=written_path, confined=True)
def create_file(params: CreateFile, ctx: Context) -> CreatedFile:
    """Write a text file in the run's workspace, whole or not at all; an older file of that path is replaced."""
    content = params.content.encode()
    refuse_larger(len(content), ctx.policy.file_bytes)
    written = ctx.workspace.write(params.path, content)
    return CreatedFile(path=params.path, bytes=written.bytes, sha256=written.sha256)


def refuse_larger(size: int, most: int) -> None:
    """FileTooLarge, before anything is written."""
    if size > most:
        which = f"file_bytes of the policy, {env_name('file_bytes')}"
        message = f"the file would have {size} bytes, at most {most} are allowed ({which})"
        raise FileTooLarge(message, path="params.content", hint="write less, or several files")


@create_file.compensation
def remove_file(params: CreateFile, _: CreatedFile | None, ctx: Context) -> None:
    """Take the file away. What is not the step's own any more, or cannot be reached now, goes with the workspace."""
    try:
        ctx.workspace.remove(params.path)
    except WorkspaceFault as fault:
        raise LeftToWorkspace(fault.message) from None


@create_file.simulate
def foresee_file(params: CreateFile) -> str:
    """What a dry run tells."""
    return f"write {len(params.content.encode())} bytes to {params.path} in the run's workspace"
