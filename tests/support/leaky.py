"""Actions and planners that know secrets and cannot keep them, loaded through MANDOR_ACTIONS by a test that looks for
them in everything that anybody may see.
"""

import ctypes
import json
import logging
import os
import subprocess
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from orchestrator.settings import settings
from orchestrator.telemetry.text import hide
from workers import Context, PermanentError, PlanContext, action, planner

CODEWORD = "SHOP_CODEWORD"  # its value is registered: nothing about its name says that it is secret
DEPOT = "DEPOT_MASTER_PASSWORD"  # nobody has registered this one
GET_DUMPABLE = 3  # of prctl(2)
RESULT = "named-field-of-a-result-06"
hide(os.environ.get(CODEWORD, ""))


class Login(BaseModel):
    """password: a field that says what it is; pin: the same, of a kind that a text is not."""

    password: str
    how: Literal["talk", "raise", "give_up"] = "talk"
    secret_level: int = 0


class Key(BaseModel):
    """note: quotes what is registered."""

    api_key: str
    note: str


class Nothing(BaseModel):
    """No params."""


def everything(named: str) -> str:
    """All secrets, each in another shape that text may have."""
    given, depot = settings(), os.environ[DEPOT]
    url, model = given.redis_url, given.llm_api_key.get_secret_value()
    fields = {"user": "ann", "clientPassword": named}
    said = (
        f"cannot log in at {url} nor {given.ledger} with {model}",
        f"{os.environ[CODEWORD]} {DEPOT}={depot} {fields!r} {json.dumps(json.dumps(fields))}",
        f"Authorization: Bearer {depot} {Login(password=named)!r} AWS_SECRET_ACCESS_KEY: {depot!r}",
        f'{{"password": "half of \\" {named}',
    )
    return "\n".join(said)


@action("test.leak", effect="keyed", attempts=2, backoff_s=0.1, backoff_max_s=0.1)
def leak(params: Login, ctx: Context) -> Key:
    said = everything(params.password)
    ctx.log.info("leak", login=params.model_dump(), said=said, deep=[{"apiKey": params.password}])
    logging.getLogger("third.party").warning("%s and %s", said, {"token": params.password})
    try:
        raise RuntimeError(said)
    except RuntimeError:
        logging.getLogger("third.party").exception("caught")
        ctx.log.exception("caught")
    if params.how != "talk":
        raise (PermanentError if params.how == "give_up" else RuntimeError)(said)
    return Key(api_key=RESULT, note=f"the word is {os.environ[CODEWORD]}")


@leak.compensation
def never(params: Login, done: Key | None, ctx: Context) -> None:
    raise PermanentError(f"{done!r} {everything(params.password)}")


@planner("test.leak")
def plan_leak(ctx: PlanContext) -> str:
    raise PermanentError(everything(os.environ[DEPOT]))


@action("test.environ", effect="pure")
def environ(params: Nothing, ctx: Context) -> Nothing:
    """Leaves beside the effect log the environment of a process that it starts, and whether others of its user may look
    into this one.
    """
    folder = Path(os.environ["EFFECT_LOG"]).parent
    (folder / "dumpable").write_text(str(ctypes.CDLL(None).prctl(GET_DUMPABLE, 0, 0, 0, 0)))
    started = subprocess.run(["cat", "/proc/self/environ"], check=True, capture_output=True)
    (folder / "environ-subprocess").write_bytes(started.stdout)
    return params
