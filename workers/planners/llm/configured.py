"""The model that the settings name, told of each time it answers."""

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.errors import MandorError
from orchestrator.settings import Settings
from orchestrator.telemetry import logs, planned
from workers.planners.llm.protocol import Call, Model, ModelMisconfigured, Prompt, Reply

_ADAPTERS: Final = {
    "openai": ("workers.planners.llm.openai", "OpenAIModel"),
    "anthropic": ("workers.planners.llm.anthropic", "AnthropicModel"),
}


def configured_model(settings: Settings) -> Model:
    """The model of MANDOR_LLM_*. ModelMisconfigured says what is missing. Nothing is connected yet."""
    if not settings.llm_provider:
        raise ModelMisconfigured("no model is configured", hint="set MANDOR_LLM_PROVIDER and MANDOR_LLM_MODEL")
    if not settings.llm_model:
        raise ModelMisconfigured("no model is named", hint="set MANDOR_LLM_MODEL")
    key = settings.llm_api_key.get_secret_value()
    if not key and not settings.llm_base_url:
        raise ModelMisconfigured(f"{settings.llm_provider} wants a key", hint="set MANDOR_LLM_API_KEY")
    adapter = _adapter(settings.llm_provider)
    model = adapter(settings.llm_model, key, settings.llm_base_url, settings.llm_structured)
    return Told(settings.llm_provider, model)


def _adapter(provider: str) -> Callable[..., Model]:
    module, name = _ADAPTERS[provider]
    try:
        return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]
    except ModuleNotFoundError as lacking:
        hint = f"pip install 'mandor[{provider}]'"
        raise ModelMisconfigured(f"the library of {provider} is not installed: {lacking.name}", hint=hint) from None


@dataclass(frozen=True)
class Told:
    """A model whose answers are told of, in numbers only."""

    provider: str
    model: Model

    def write(self, prompt: Prompt, call: Call) -> Reply:
        """An answer in free text."""
        return self._told(lambda: self.model.write(prompt, call))

    def fill(self, prompt: Prompt, schema: Mapping[str, Any], call: Call) -> Reply:
        """An answer by a schema."""
        return self._told(lambda: self.model.fill(prompt, schema, call))

    def reach(self, timeout_s: float) -> None:
        """Whether the provider answers. Nothing is told of it: it is no call of the model."""
        self.model.reach(timeout_s)

    def _told(self, ask: Callable[[], Reply]) -> Reply:
        started = time.monotonic()
        try:
            reply = ask()
        except MandorError as error:
            logs.emit(planned.ModelFailed(self.provider, error.kind, _ms_since(started)))
            raise
        bill = (reply.input_tokens, reply.output_tokens)
        logs.emit(planned.ModelCalled(self.provider, reply.model, reply.finish_reason, _ms_since(started), *bill))
        return reply


def _ms_since(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
