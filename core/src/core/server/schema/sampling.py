"""The sampling fields that the completion and the chat endpoint share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from core.errors import InvalidRequest
from core.sampling.params import SamplingParams
from core.server.schema.request import RequestModel

MAX_CHOICES = 128
MAX_STOPS = 16

_INT64 = 2**63
_INT32 = 2**31

T = TypeVar("T")

STRUCTURED_OUTPUT: dict[str, tuple[Any, ...]] = {
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "json_schema": (),
    "regex": (),
    "choice": (),
    "grammar": (),
    "ebnf": (),
}
"""Fields that ask for structured output, under the names of OpenAI, vLLM and SGLang."""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _integer_keys(value: Any) -> Any:
    """JSON's keys are strings; the ids in them are integers."""
    if not isinstance(value, dict):
        return value
    for key in value:
        if not (isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 18):
            raise ValueError(f"keys must be token ids, got {str(key)[:40]!r}")
    return {int(key): bias for key, bias in value.items()}


Stops = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_as_list), Field(max_length=MAX_STOPS)]
TokenIds = list[Annotated[int, Field(ge=0, lt=_INT64)]]
LogitBias = Annotated[dict[int, Annotated[float, Field(ge=-100, le=100)]], BeforeValidator(_integer_keys)]


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What stands below a request's values: the model's `generation_config`, and below that OpenAI's defaults."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @classmethod
    def of_model(cls, generation_config: Mapping[str, Any]) -> SamplingDefaults:
        """Take the known keys of a model's `generation_config`; null counts as absent."""
        names = cls.__dataclass_fields__
        return cls(**{name: generation_config[name] for name in names if generation_config.get(name) is not None})


class StreamOptions(RequestModel):
    """What a stream carries beside the text."""

    include_usage: bool | None = None


class SamplingFields(RequestModel):
    """Fields of both OpenAI endpoints, and the extensions to them under vLLM's and SGLang's names."""

    unsupported: ClassVar[dict[str, tuple[Any, ...]]] = {
        **STRUCTURED_OUTPUT,
        "use_beam_search": (),
        "prompt_logprobs": (),
        "logits_processors": (),
        "bad_words": (),
    }

    model: str | None = None
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: LogitBias | None = None
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    seed: int | None = Field(None, ge=-_INT64, lt=_INT64)
    stop: Stops | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    user: str | None = None

    top_k: int | None = Field(None, ge=-1, lt=_INT32)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0)
    min_tokens: int | None = Field(None, ge=0, lt=_INT32)
    stop_token_ids: TokenIds | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    cache_salt: str | None = None
    return_token_ids: bool | None = None

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> SamplingFields:
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest("stream_options is only allowed with stream: true", param="stream_options")
        return self

    @property
    def include_usage(self) -> bool:
        """Does the stream end with a usage chunk?"""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def sampling_params(
        self, defaults: SamplingDefaults, *, max_tokens: int | None, logprobs: int | None, prompt_logprobs: int | None
    ) -> SamplingParams:
        """The engine's form of these fields. Ids are checked against the vocabulary by the front end."""
        return SamplingParams(
            max_tokens=max_tokens,
            min_tokens=self.min_tokens or 0,
            temperature=first_given(self.temperature, defaults.temperature),
            top_k=first_given(self.top_k, defaults.top_k),
            top_p=first_given(self.top_p, defaults.top_p),
            min_p=first_given(self.min_p, defaults.min_p),
            repetition_penalty=first_given(self.repetition_penalty, defaults.repetition_penalty),
            frequency_penalty=self.frequency_penalty or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            stop=tuple(self.stop or ()),
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=bool(self.ignore_eos),
            logit_bias=self.logit_bias or {},
            seed=self.seed,
            n=self.n or 1,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            skip_special_tokens=self.skip_special_tokens is not False,
            include_stop=bool(self.include_stop_str_in_output),
        )


def first_given(value: T | None, default: T) -> T:
    """The value unless it is None."""
    return default if value is None else value
