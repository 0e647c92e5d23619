"""What a model is to the rest of the project: two methods with one request and one bill each, and one without a bill.

ProviderError                 (workers.outcomes)
├── ModelTimeout              no answer in time
├── ModelRateLimited          the provider asks for patience, perhaps with a time
└── ModelUnavailable          no connection, a server error, or an answer that is none
ModelMisconfigured            a PermanentError: no repetition helps, a setting does
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.telemetry.text import without_hidden
from workers.outcomes import PermanentError, ProviderError


@dataclass(frozen=True, slots=True)
class Prompt:
    """system: what we say. user: the rest, where other people's text stands between marks; a secret that is known to
    be one does not go to a model, whoever wrote it there.
    """

    system: str
    user: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "user", without_hidden(self.user))

    def as_json(self) -> dict[str, str]:
        """By role, as it is stored."""
        return {"system": self.system, "user": self.user}


@dataclass(frozen=True, slots=True)
class Call:
    """One request. timeout_s: for all of it; key: what a provider may de-duplicate by; max_tokens: of the answer."""

    timeout_s: float
    key: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """text: empty where the model wrote none. finish_reason: the provider's word. Tokens: as the provider counts."""

    text: str
    finish_reason: str
    model: str
    input_tokens: int
    output_tokens: int

    def tokens(self) -> dict[str, int]:
        """The bill."""
        return {"input": self.input_tokens, "output": self.output_tokens}


class Model(Protocol):
    """A model behind a provider. The methods raise the errors above and nothing else."""

    def write(self, prompt: Prompt, call: Call) -> Reply:
        """An answer in free text."""

    def fill(self, prompt: Prompt, schema: Mapping[str, Any], call: Call) -> Reply:
        """An answer that is JSON by this schema, as far as the provider can see to it; nobody may rely on it."""

    def reach(self, timeout_s: float) -> None:
        """Return if the provider answers and takes the key. Costs nothing."""


class ModelTimeout(ProviderError):
    """No answer in time."""

    kind = "llm_timeout"


class ModelRateLimited(ProviderError):
    """The provider wants patience."""

    kind = "llm_rate_limited"


class ModelUnavailable(ProviderError):
    """No connection, a fault of the server's, or an answer that is none."""

    kind = "llm_unavailable"


class ModelMisconfigured(PermanentError):
    """The provider refuses, and would again. The hint names the setting to mend."""

    kind = "llm_misconfigured"
