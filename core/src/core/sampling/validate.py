"""What a request may ask of sampling. Imports no torch."""

from __future__ import annotations

import sys

from core.errors import InvalidRequest
from core.sampling.params import SamplingParams

MAX_CHOICES = 128
MAX_STOPS = 16
MAX_LOGPROBS = 20
MAX_LOGIT_BIAS = 100.0

_LARGEST = sys.float_info.max
_INT32 = 2**31
_INT64 = 2**63


def validate_sampling_params(params: SamplingParams, *, vocab_size: int, max_logprobs: int = MAX_LOGPROBS) -> None:
    """Check every field by itself and against the vocabulary; the context's length is not this function's affair.

    Types are checked too, since `SamplingParams` does not when it is constructed in Python. `max_tokens` 0 draws
    nothing, so it is allowed only together with `prompt_logprobs`: there is nothing else that such a request asks for.

    Raises `InvalidRequest`, with the field at fault in `param`.
    """
    _check_lengths(params)
    _check_number("temperature", params.temperature, low=0)
    _check_integer("top_k", params.top_k, low=-1, high=_INT32 - 1, meaning="0 and -1 keep all tokens")
    _check_number("top_p", params.top_p, low=0, high=1)
    _check_number("min_p", params.min_p, low=0, high=1)
    _check_number("repetition_penalty", params.repetition_penalty, low=0, meaning="1 means none")
    if params.repetition_penalty == 0:
        raise InvalidRequest(
            "repetition_penalty is 0, but logits are divided by it; 1 means none", param="repetition_penalty"
        )
    _check_number("frequency_penalty", params.frequency_penalty)
    _check_number("presence_penalty", params.presence_penalty)
    _check_stops(params, vocab_size)
    _check_logit_bias(params.logit_bias, vocab_size)
    if params.seed is not None:
        _check_integer("seed", params.seed, low=-_INT64, high=_INT64 - 1)
    _check_integer("n", params.n, low=1, high=MAX_CHOICES)
    if params.logprobs is not None:
        _check_integer("logprobs", params.logprobs, low=0, high=max_logprobs)
    if params.prompt_logprobs is not None:
        _check_integer("prompt_logprobs", params.prompt_logprobs, low=0, high=max_logprobs)
    for name in ("ignore_eos", "skip_special_tokens", "include_stop"):
        value = getattr(params, name)
        if type(value) is not bool:
            raise _mistyped(name, value, "True or False")


def _check_lengths(params: SamplingParams) -> None:
    _check_integer("min_tokens", params.min_tokens, low=0, high=_INT32 - 1)
    if params.max_tokens is None:
        return
    _check_integer("max_tokens", params.max_tokens, low=0, high=_INT32 - 1)
    if params.max_tokens == 0 and params.prompt_logprobs is None:
        raise InvalidRequest("max_tokens is 0: ask for at least 1 token, or for prompt_logprobs", param="max_tokens")
    if params.min_tokens > params.max_tokens:
        raise InvalidRequest(
            f"min_tokens is {params.min_tokens}, more than max_tokens, which is {params.max_tokens}; "
            "lower min_tokens or raise max_tokens",
            param="min_tokens",
        )


def _check_stops(params: SamplingParams, vocab_size: int) -> None:
    if not isinstance(params.stop, tuple | list):
        raise _mistyped("stop", params.stop, "a list of strings")
    if len(params.stop) > MAX_STOPS:
        raise InvalidRequest(f"stop has {len(params.stop)} strings, at most {MAX_STOPS} are allowed", param="stop")
    for text in params.stop:
        if not isinstance(text, str):
            raise _mistyped("stop", text, "strings only")
        if not text:
            raise InvalidRequest("stop has an empty string, which every text contains; leave it out", param="stop")
    if not isinstance(params.stop_token_ids, tuple | list):
        raise _mistyped("stop_token_ids", params.stop_token_ids, "a list of token ids")
    for token_id in params.stop_token_ids:
        _check_token_id("stop_token_ids", token_id, vocab_size)


def _check_logit_bias(bias: dict[int, float], vocab_size: int) -> None:
    if not isinstance(bias, dict):
        raise _mistyped("logit_bias", bias, "a map from token id to number")
    for token_id, value in bias.items():
        _check_token_id("logit_bias", token_id, vocab_size)
        _check_number("logit_bias", value, low=-MAX_LOGIT_BIAS, high=MAX_LOGIT_BIAS)


def _check_token_id(name: str, token_id: object, vocab_size: int) -> None:
    if type(token_id) is not int:
        raise _mistyped(name, token_id, "integer token ids")
    if not 0 <= token_id < vocab_size:
        raise InvalidRequest(
            f"{name} has token id {token_id}, which is not in the vocabulary: ids run from 0 to {vocab_size - 1}",
            param=name,
        )


def _check_integer(name: str, value: object, *, low: int, high: int, meaning: str = "") -> None:
    if type(value) is not int:  # True and False are no numbers here
        raise _mistyped(name, value, "an integer")
    if not low <= value <= high:
        raise InvalidRequest(f"{name} is {value}, expected {low} to {high}{_remark(meaning)}", param=name)


def _check_number(
    name: str, value: object, *, low: float = -_LARGEST, high: float = _LARGEST, meaning: str = ""
) -> None:
    if type(value) is not float and type(value) is not int:
        raise _mistyped(name, value, "a number")
    if low <= value <= high:  # false for NaN
        return
    if high < _LARGEST:
        expected = f"{low:g} to {high:g}"
    else:
        expected = "a finite number" + (f", at least {low:g}" if low > -_LARGEST else "")
    raise InvalidRequest(f"{name} has the value {value}, expected {expected}{_remark(meaning)}", param=name)


def _remark(meaning: str) -> str:
    return f" ({meaning})" if meaning else ""


def _mistyped(name: str, value: object, expected: str) -> InvalidRequest:
    return InvalidRequest(f"{name} has {value!r:.60}, a {type(value).__name__}; expected {expected}", param=name)
