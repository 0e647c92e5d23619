"""OpenAI's chat completions, which most servers of models speak too: the extra `openai`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import openai
from pydantic import BaseModel, Field, ValidationError

from workers.planners.llm import http
from workers.planners.llm.protocol import Call, ModelTimeout, ModelUnavailable, Prompt, Reply

OWN_URL: Final = "https://api.openai.com/v1"
_NO_KEY: Final = "none"  # the library insists on one; servers of one's own need none


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(BaseModel):
    """The part of an answer that is read. The library itself checks nothing of it."""

    choices: list[_Choice] = Field(min_length=1)
    model: str | None = None
    usage: _Usage | None = None


@dataclass(frozen=True)
class OpenAIModel:
    """A model behind a chat completions address. structured: whether the server takes a JSON schema."""

    name: str
    api_key: str = field(default="", repr=False)
    base_url: str = ""
    structured: bool = True

    def write(self, prompt: Prompt, call: Call) -> Reply:
        """An answer in free text."""
        return self._ask(prompt, call, {})

    def fill(self, prompt: Prompt, schema: Mapping[str, Any], call: Call) -> Reply:
        """An answer by a schema. Not `strict`, which would refuse schemas with objects of free keys."""
        wanted = {"name": "answer", "schema": dict(schema), "strict": False}
        held = {"response_format": {"type": "json_schema", "json_schema": wanted}} if self.structured else {}
        return self._ask(prompt, call, held)

    def reach(self, timeout_s: float) -> None:
        """List the models, which nobody bills. A server that offers no list has answered too."""
        try:
            self._client().models.with_raw_response.list(timeout=http.timeout(timeout_s))
        except openai.NotFoundError:
            return
        except openai.APIError as wrong:
            raise _told(wrong) from None

    def _ask(self, prompt: Prompt, call: Call, held: dict[str, Any]) -> Reply:
        try:
            answer = self._client().chat.completions.with_raw_response.create(**self._request(prompt, call), **held)
        except openai.APIError as wrong:
            raise _told(wrong) from None
        return self._reply(answer.http_response.content)

    def _request(self, prompt: Prompt, call: Call) -> dict[str, Any]:
        # OpenAI itself refuses max_tokens for its newer models; other servers know nothing else
        room = "max_tokens" if self.base_url else "max_completion_tokens"
        return {
            "model": self.name,
            "messages": [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}],
            "timeout": http.timeout(call.timeout_s),
            "extra_headers": {"Idempotency-Key": call.key},
            room: call.max_tokens,
        }

    def _client(self) -> openai.OpenAI:
        return http.of_this_process(self, self._open)

    def _open(self) -> openai.OpenAI:
        return openai.OpenAI(
            api_key=http.checked_key(self.api_key or _NO_KEY),
            base_url=self.base_url or OWN_URL,
            max_retries=0,
            http_client=http.client(),
        )

    def _reply(self, content: bytes) -> Reply:
        try:
            read = _Completion.model_validate(http.parsed(content))
        except ValidationError:
            raise ModelUnavailable("the model's server answered with something that is no chat completion") from None
        first, usage = read.choices[0], read.usage or _Usage()
        message = first.message
        reason = "refusal" if message.refusal and not message.content else first.finish_reason or ""
        return Reply(
            text=message.content or message.refusal or "",
            finish_reason=reason,
            model=read.model or self.name,
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
        )


def _told(wrong: openai.APIError) -> Exception:
    if isinstance(wrong, openai.APITimeoutError):  # also a connection error, so it comes first
        return ModelTimeout("the model did not answer in time")
    if isinstance(wrong, openai.APIStatusError):
        return http.status_error(wrong.status_code, wrong.response.headers, wrong.body, wrong.message)
    return ModelUnavailable(f"the model's server cannot be spoken to: {http.cause_of(wrong)}")
