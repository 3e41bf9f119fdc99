"""OpenAI's chat completions: request, answer and stream chunk."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType
from pydantic import BeforeValidator, Field, model_validator

from core.errors import InvalidRequest
from core.sampling.params import SamplingParams
from core.server.schema.request import RequestModel
from core.server.schema.sampling import SamplingDefaults, SamplingFields
from core.server.schema.usage import Usage

_NO_VARIABLES = frozenset({"self", "messages", "tools", "add_generation_prompt", "continue_final_message"})


def _joined(content: Any) -> Any:
    """A list of text parts as one string: templates take strings, and clients send both."""
    if not isinstance(content, list):
        if content is None:
            raise ValueError("expected a string or a list of text parts, got null")
        return content
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise ValueError('only parts of the form {"type": "text", "text": ...} are supported')
        texts.append(part["text"])
    return "".join(texts)


class ChatMessage(RequestModel):
    """One message. Fields that are not known here reach the chat template as they are."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_joined)]

    @model_validator(mode="before")
    @classmethod
    def _no_tool_calls(cls, message: Any) -> Any:
        if isinstance(message, dict) and (message.get("role") in ("tool", "function") or message.get("tool_calls")):
            raise InvalidRequest("Tool calls and their results are not supported by this server", param="messages")
        return message


class ChatRequest(SamplingFields):
    """Body of `POST /v1/chat/completions`."""

    unsupported: ClassVar[dict[str, tuple[Any, ...]]] = {
        **SamplingFields.unsupported,
        "tools": (),
        "tool_choice": ("none", "auto"),
        "functions": (),
        "function_call": ("none", "auto"),
        "modalities": (["text"],),
        "audio": (),
        "prediction": (),
        "web_search_options": (),
        "chat_template": (),
    }

    messages: list[ChatMessage] = Field(min_length=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> ChatRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequest("top_logprobs is only allowed with logprobs: true", param="top_logprobs")
        if taken := sorted(_NO_VARIABLES & (self.chat_template_kwargs or {}).keys()):
            message = f"{', '.join(taken)}: these are fields of the request, not variables of the template"
            raise InvalidRequest(message, param="chat_template_kwargs")
        if self.continue_final_message and self.messages[-1].role != "assistant":
            message = "continue_final_message needs a last message of the role assistant"
            raise InvalidRequest(message, param="continue_final_message")
        return self

    def params(self, defaults: SamplingDefaults) -> SamplingParams:
        """The engine's form of this request; without a limit it may use the whole context."""
        limit = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        logprobs = (self.top_logprobs or 0) if self.logprobs else None
        return self.sampling_params(defaults, max_tokens=limit, logprobs=logprobs, prompt_logprobs=None)


class TopLogprob(msgspec.Struct, frozen=True):
    """One of the likeliest tokens at a place."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(msgspec.Struct, frozen=True):
    """One token of the answer; `bytes` may be a part of a character."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """One entry a token of the answer, of this chunk in a stream."""

    content: list[ChatTokenLogprob]
    refusal: None = None


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The whole message of a choice."""

    role: str = "assistant"
    content: str
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One whole choice. The last two fields are extensions, as in vLLM."""

    index: int
    message: ChatAnswer
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | UnsetType = UNSET


class ChatDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to the message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A part of one choice; `finish_reason` is null in all but the last."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream; `usage` is left out unless asked for, and then null in all but the last."""

    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
