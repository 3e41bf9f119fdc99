"""The native endpoint `/generate`, in the form that SGLang's clients send and expect."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType
from pydantic import Field, field_validator, model_validator

from core.errors import InvalidRequest
from core.sampling.params import SamplingParams
from core.server.schema.completions import Prompt, prompt_list
from core.server.schema.request import RequestModel
from core.server.schema.sampling import (
    MAX_CHOICES,
    STRUCTURED_OUTPUT,
    LogitBias,
    SamplingDefaults,
    Stops,
    TokenIds,
    first_given,
)

DEFAULT_MAX_NEW_TOKENS = 128

TokenTriple = tuple[float | None, int, str]
"""(log-probability, token id, text); a prompt's first token has no log-probability."""


class GenerateSampling(RequestModel):
    """The `sampling_params` of `/generate`."""

    unsupported: ClassVar[dict[str, tuple[Any, ...]]] = {**STRUCTURED_OUTPUT, "structural_tag": ()}

    max_new_tokens: int | None = Field(DEFAULT_MAX_NEW_TOKENS, ge=1)
    min_new_tokens: int = Field(0, ge=0, lt=2**31)
    temperature: float | None = Field(None, ge=0, le=2)
    top_k: int | None = Field(None, ge=-1, lt=2**31)
    top_p: float | None = Field(None, ge=0, le=1)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    stop: Stops | None = None
    stop_token_ids: TokenIds | None = None
    ignore_eos: bool = False
    logit_bias: LogitBias | None = None
    sampling_seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    n: int = Field(1, ge=1, le=MAX_CHOICES)
    skip_special_tokens: bool = True
    no_stop_trim: bool = False


class GenerateRequest(RequestModel):
    """Body of `POST /generate`: `text` or `input_ids`, of one prompt or a list."""

    unsupported: ClassVar[dict[str, tuple[Any, ...]]] = {
        "input_embeds": (),
        "image_data": (),
        "audio_data": (),
        "lora_path": (),
        "return_hidden_states": (),
    }

    text: list[Prompt] | None = None
    input_ids: list[Prompt] | None = None
    sampling_params: GenerateSampling | None = None
    stream: bool = False
    rid: str | None = Field(None, max_length=256, pattern=r"^[!-~]+$")
    return_logprob: bool = False
    logprob_start_len: int = Field(-1, ge=-1, description="0 also reports the prompt's tokens.")
    top_logprobs_num: int = Field(0, ge=0, le=20)
    is_list: bool = Field(False, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _one_input(cls, data: Any) -> Any:
        given = [name for name in ("text", "input_ids") if data.get(name) is not None]
        if len(given) != 1:
            raise InvalidRequest("Give either text or input_ids", param="text")
        value = data[given[0]]
        inner = value[0] if isinstance(value, list) and value else None
        return {**data, "is_list": isinstance(value, list) and not isinstance(inner, int)}

    @field_validator("text", "input_ids", mode="plain")
    @classmethod
    def _prompts(cls, value: Any) -> list[Prompt] | None:
        return None if value is None else prompt_list(value)

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts, from whichever field they came in."""
        return self.text or self.input_ids or []

    def params(self, defaults: SamplingDefaults) -> SamplingParams:
        """The engine's form of this request."""
        fields = self.sampling_params or GenerateSampling()
        logprobs = self.top_logprobs_num if self.return_logprob else None
        return SamplingParams(
            max_tokens=fields.max_new_tokens,
            min_tokens=fields.min_new_tokens,
            temperature=first_given(fields.temperature, defaults.temperature),
            top_k=first_given(fields.top_k, defaults.top_k),
            top_p=first_given(fields.top_p, defaults.top_p),
            min_p=first_given(fields.min_p, defaults.min_p),
            repetition_penalty=first_given(fields.repetition_penalty, defaults.repetition_penalty),
            frequency_penalty=fields.frequency_penalty,
            presence_penalty=fields.presence_penalty,
            stop=tuple(fields.stop or ()),
            stop_token_ids=tuple(fields.stop_token_ids or ()),
            ignore_eos=fields.ignore_eos,
            logit_bias=fields.logit_bias or {},
            seed=fields.sampling_seed,
            n=fields.n,
            logprobs=logprobs,
            prompt_logprobs=logprobs if self.logprob_start_len == 0 else None,
            skip_special_tokens=fields.skip_special_tokens,
            include_stop=fields.no_stop_trim,
        )


class GenerateFinish(msgspec.Struct, frozen=True, kw_only=True):
    """Why a choice ended: `type` is stop, length or abort."""

    type: str
    matched: str | int | UnsetType = UNSET
    length: int | UnsetType = UNSET


class GenerateMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a choice beside its text; lists of log-probabilities where asked for."""

    id: str
    finish_reason: GenerateFinish | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    e2e_latency: float | UnsetType = UNSET
    input_token_logprobs: list[TokenTriple] | UnsetType = UNSET
    output_token_logprobs: list[TokenTriple] | UnsetType = UNSET
    input_top_logprobs: list[list[TokenTriple]] | UnsetType = UNSET
    output_top_logprobs: list[list[TokenTriple]] | UnsetType = UNSET


class GenerateResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One choice. In a stream, each event holds all of the choice so far, and `index` says which."""

    index: int | UnsetType = UNSET
    text: str
    output_ids: list[int]
    meta_info: GenerateMeta
