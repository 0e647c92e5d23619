"""Loaded by real workers through MANDOR_ACTIONS: kills the planner's child at one place, once each time it is asked.

The place is the content of the file `die` beside the effect log: a function's name, and whether to die before or after.
"""

import os
import signal
from pathlib import Path
from typing import Any

from orchestrator.ledger import Ledger
from orchestrator.store.runs import Runs

PLACES = ((Ledger, "store_answer"), (Ledger, "store_plan"), (Runs, "admit_plan"))


def asked_to_die(place: str) -> bool:
    """Whether this is the place; asked only once."""
    order = Path(os.environ["EFFECT_LOG"]).with_name("die")
    if not order.exists() or order.read_text() != place:
        return False
    order.unlink()
    return True


def dying(owner: Any, name: str) -> Any:
    """The function, deadly on demand."""
    original = getattr(owner, name)

    def call(*given: Any, **more: Any) -> Any:
        if asked_to_die(f"{name} before"):
            os.kill(os.getpid(), signal.SIGKILL)
        answer = original(*given, **more)
        if asked_to_die(f"{name} after"):
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return call


for owner, name in PLACES:
    setattr(owner, name, dying(owner, name))
