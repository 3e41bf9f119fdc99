"""OpenAI's completions: request, answer and stream chunk."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType
from pydantic import Field, field_validator, model_validator

from core.errors import InvalidRequest
from core.sampling.params import SamplingParams
from core.server.schema.sampling import SamplingDefaults, SamplingFields
from core.server.schema.usage import Usage

Prompt = str | list[int]

DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 2048


class CompletionRequest(SamplingFields):
    """Body of `POST /v1/completions`. `prompt` is always a list once validated."""

    unsupported: ClassVar[dict[str, tuple[Any, ...]]] = {**SamplingFields.unsupported, "suffix": ()}

    prompt: list[Prompt]
    best_of: int | None = Field(None, ge=1)
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=5)
    max_tokens: int | None = Field(None, ge=0)
    add_special_tokens: bool = True

    @field_validator("prompt", mode="plain")
    @classmethod
    def _prompts(cls, value: Any) -> list[Prompt]:
        return prompt_list(value)

    @model_validator(mode="after")
    def _best_of_is_n(self) -> CompletionRequest:
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise InvalidRequest("best_of is only supported when equal to n", param="best_of")
        return self

    def params(self, defaults: SamplingDefaults) -> SamplingParams:
        """The engine's form of this request. It draws nothing only for who asks for the prompt's log-probabilities."""
        max_tokens = DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens
        prompt_logprobs = self.logprobs if self.echo else None
        if max_tokens == 0 and prompt_logprobs is None:
            prompt_logprobs = 0
        return self.sampling_params(
            defaults, max_tokens=max_tokens, logprobs=self.logprobs, prompt_logprobs=prompt_logprobs
        )


def prompt_list(value: Any) -> list[Prompt]:
    """A prompt in any of OpenAI's four forms as a list of texts or of id lists. Raises ValueError for any other."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise ValueError("expected a string, a list of strings, a list of token ids or a list of such lists")
    if not value:
        raise ValueError("the list of prompts or token ids is empty")
    if _all_ids(value):
        return [value]
    if not all(isinstance(item, str) or (isinstance(item, list) and _all_ids(item)) for item in value):
        raise ValueError("every item must be a string, or every item a token id, or every item a list of token ids")
    if len(value) > MAX_PROMPTS:
        raise ValueError(f"at most {MAX_PROMPTS} prompts a request, got {len(value)}")
    if [] in value:
        raise ValueError("a list of token ids is empty")
    return list(value)


def _all_ids(items: list[Any]) -> bool:
    return all(type(item) is int for item in items)  # bool is an int, and no token id


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Parallel lists, one entry a token. A prompt's first token has neither probability nor alternatives."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice, whole or a part of a stream. The last three fields are extensions, as in vLLM."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class CompletionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, and each chunk of a stream; `usage` is left out of chunks unless asked for."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
