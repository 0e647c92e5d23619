"""A control worker whose child is killed, once, between two writes of a submission.

    KILL_ONCE=<file> celery -A tests.support.dying_control worker -Q control

The file marks that it has happened: the next child goes on.
"""

import os
import signal
from pathlib import Path
from typing import Any

from orchestrator import submission
from orchestrator.app import app

create: Any = submission._create


def die_once(*args: Any) -> Any:
    """Instead of the store's write, right after the ledger's."""
    mark = Path(os.environ["KILL_ONCE"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return create(*args)


setattr(submission, "_create", die_once)  # noqa: B010  # not with its types

__all__ = ["app"]
