"""An action that leaves something in its scratch folder, and looks for what others have left there."""

import os
import signal

from pydantic import BaseModel

from workers import Context, action


class Plant(BaseModel):
    die: bool = False
    refuse: bool = False


class Found(BaseModel):
    """Scratch folders of others that were there; pid: of the child."""

    others: int
    pid: int


@action("test.plant", effect="pure", attempts=3, backoff_s=0)
def plant(params: Plant, ctx: Context) -> Found:
    """Plant, look, and end as told at the first attempt."""
    (ctx.scratch / "deep").mkdir()
    (ctx.scratch / "deep" / "secret.txt").write_text("planted")
    (ctx.scratch / "deep").chmod(0)
    if params.die and ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if params.refuse and ctx.attempt == 1:
        raise RuntimeError("not yet")
    return Found(others=len(list(ctx.scratch.parent.iterdir())) - 1, pid=os.getpid())
