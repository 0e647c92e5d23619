"""How full a workspace gets while a command works in it: what a command writes, nobody is asked about before.

So it is looked at again and again, and whatever makes it too full is ended. Between two looks it may grow; a look takes
at most a tenth of the time, however much there is to be counted. One last look is when the command has ended and can
move nothing any more.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from orchestrator.settings import env_name
from schemas.policy import Policy
from workers.beneath import FOLDER
from workers.outcomes import PermanentError
from workers.room import Usage, WorkspaceFull, usage_beside

FIRST_S: Final = 0.25  # most commands have ended by then
_SHARE: Final = 10
_PATH: Final = "params.command"


class CommandFilled(PermanentError):
    """The command was ended, or failed when it had ended, because the workspace holds more than policy allows."""

    kind = "workspace_full"


class Filling:
    """A check of a running command: its own comes first, then a look at the workspace if it is time. more: what the
    error says besides.
    """

    def __init__(self, tree: Path, policy: Policy, check: Callable[[], None], more: str = "") -> None:
        self._tree = tree
        self._policy = policy
        self._check = check
        self._more = more
        self._look_at = time.monotonic() + FIRST_S

    def __call__(self) -> None:
        """CommandFilled, or what the other check raises."""
        self._check()
        began = time.monotonic()
        if began >= self._look_at:
            self.look()
            now = time.monotonic()
            self._look_at = now + max(FIRST_S, _SHARE * (now - began))

    def refuse(self) -> None:
        """WorkspaceFull: there is too much in it already, so nothing may be started."""
        if too_much := self._too_much():
            raise WorkspaceFull(f"the command was not started: {too_much}", path=_PATH, hint="write less before it")

    def look(self) -> None:
        """CommandFilled: there is too much in it by now, or nobody can say how much."""
        self._look("the command was ended")

    def look_back(self) -> None:
        """CommandFilled: the command has ended, and left too much."""
        self._look("the command has left too much")

    def _look(self, what: str) -> None:
        if too_much := self._too_much():
            raise CommandFilled(f"{what}: {too_much}{self._more}", path=_PATH, hint="write less in it")

    def _too_much(self) -> str | None:
        used, most = self._used(), self._policy
        if used is None:
            return "nobody can say how full the workspace is"
        if used.files > most.workspace_files:
            return _more_than(most.workspace_files, "entries", "workspace_files")
        if used.bytes > most.workspace_bytes:
            return _more_than(most.workspace_bytes, "bytes", "workspace_bytes")
        return None

    def _used(self) -> Usage | None:
        try:
            root = os.open(self._tree, FOLDER)
            try:
                return usage_beside(root, (), self._policy.workspace_files)
            finally:
                os.close(root)
        except FileNotFoundError:  # a command without a sandbox can take even that away
            return Usage(0, 0)
        except (OSError, PermanentError):  # shut, or deeper than any path leads
            return None


def _more_than(most: int, unit: str, field: str) -> str:
    return f"the workspace holds more than {most} {unit} ({field} of the policy, {env_name(field)})"
