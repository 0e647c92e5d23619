"""Whether this installation would post to a URL at all: asked before a run is accepted, and before anything is sent."""

from orchestrator.deliveries.deliver import HINT, SETTING, keys_of
from orchestrator.deliveries.guard import Refused, check_url, read_allowed
from orchestrator.errors import ConfigError
from orchestrator.settings import Settings
from schemas.callback import read_url
from schemas.issues import Issue


def fault_of(url: str, given: Settings) -> tuple[Issue, str] | None:
    """What stands against it, and the mend. What its host resolves to is judged when it is posted to."""
    try:
        keys_of(given)
        check_url(read_url(url), read_allowed(given.webhook_allowed))
    except ConfigError:
        return Issue(
            "callback", "callback", f"nothing would be told: {SETTING} is not set where runs are accepted"
        ), HINT
    except Refused as why:
        return Issue("callback", "callback", str(why)), "name another URL, or have the operator allow this one"
    return None
