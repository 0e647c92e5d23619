"""Anthropic's messages: the extra `anthropic`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anthropic
from pydantic import BaseModel, ValidationError

from workers.planners.llm import http
from workers.planners.llm.protocol import Call, ModelTimeout, ModelUnavailable, Prompt, Reply

OWN_URL: Final = "https://api.anthropic.com"
_SAYS: Final = frozenset({"type", "const", "enum", "$ref", "anyOf", "allOf", "oneOf"})


class _Block(BaseModel):
    type: str
    text: str = ""


class _Usage(BaseModel):
    input_tokens: int = 0
    output_tokens: int = 0


class _Message(BaseModel):
    """The part of an answer that is read. The library itself checks nothing of it."""

    content: list[_Block]
    stop_reason: str | None = None
    model: str | None = None
    usage: _Usage | None = None


@dataclass(frozen=True)
class AnthropicModel:
    """A model of Anthropic's, or behind an address that speaks like it."""

    name: str
    api_key: str = field(default="", repr=False)
    base_url: str = ""
    structured: bool = True

    def write(self, prompt: Prompt, call: Call) -> Reply:
        """An answer in free text."""
        return self._ask(prompt, call, {})

    def fill(self, prompt: Prompt, schema: Mapping[str, Any], call: Call) -> Reply:
        """An answer by a schema; in free text where an object of the schema may have any keys, which is not offered."""
        if not self.structured or has_open_object(schema):
            return self._ask(prompt, call, {})
        held = {"format": {"type": "json_schema", "schema": anthropic.transform_schema(dict(schema))}}
        return self._ask(prompt, call, {"output_config": held})

    def reach(self, timeout_s: float) -> None:
        """List the models, which nobody bills. A server that offers no list has answered too."""
        try:
            self._client().models.with_raw_response.list(timeout=http.timeout(timeout_s))
        except anthropic.NotFoundError:
            return
        except anthropic.APIError as wrong:
            raise _told(wrong) from None

    def _ask(self, prompt: Prompt, call: Call, held: dict[str, Any]) -> Reply:
        try:
            answer = self._client().messages.with_raw_response.create(**self._request(prompt, call), **held)
        except anthropic.APIError as wrong:
            raise _told(wrong) from None
        return self._reply(answer.http_response.content)

    def _request(self, prompt: Prompt, call: Call) -> dict[str, Any]:
        return {
            "model": self.name,
            "system": prompt.system,
            "messages": [{"role": "user", "content": prompt.user}],
            "max_tokens": call.max_tokens,
            "timeout": http.timeout(call.timeout_s),
            "extra_headers": {"Idempotency-Key": call.key},
        }

    def _client(self) -> anthropic.Anthropic:
        return http.of_this_process(self, self._open)

    def _open(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(
            api_key=http.checked_key(self.api_key or "none"),
            base_url=self.base_url or OWN_URL,
            max_retries=0,
            http_client=http.client(),
        )

    def _reply(self, content: bytes) -> Reply:
        try:
            read = _Message.model_validate(http.parsed(content))
        except ValidationError:
            raise ModelUnavailable("the model's server answered with something that is no message") from None
        usage = read.usage or _Usage()
        return Reply(
            text="".join(block.text for block in read.content if block.type == "text"),
            finish_reason=read.stop_reason or "",
            model=read.model or self.name,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
        )


def has_open_object(schema: Mapping[str, Any]) -> bool:
    """Whether the schema leaves open, anywhere, which keys an object has or what stands in a place."""
    if not _SAYS & schema.keys():
        return True
    is_open = schema.get("type") == "object" and schema.get("additionalProperties") is not False
    return is_open or any(has_open_object(one) for one in _parts(schema))


def _parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in ("properties", "$defs"):
        yield from schema.get(name, {}).values()
    for name in ("anyOf", "allOf", "oneOf"):
        yield from schema.get(name, ())
    if "items" in schema:
        yield schema["items"]


def _told(wrong: anthropic.APIError) -> Exception:
    if isinstance(wrong, anthropic.APITimeoutError):  # also a connection error, so it comes first
        return ModelTimeout("the model did not answer in time")
    if isinstance(wrong, anthropic.APIStatusError):
        return http.status_error(wrong.status_code, wrong.response.headers, wrong.body, wrong.message)
    return ModelUnavailable(f"the model's server cannot be spoken to: {http.cause_of(wrong)}")
