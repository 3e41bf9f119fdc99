"""Every field out of range is refused by name; what is in range passes."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from core.errors import InvalidRequest
from core.sampling.params import SamplingParams
from core.sampling.validate import validate_sampling_params

VOCAB = 100
NAN, INF = float("nan"), float("inf")

BAD: dict[str, list[Any]] = {
    "max_tokens": [-1, 0, True, 1.0, "5", 2**31],
    "min_tokens": [-1, True, None, 1.5, 2**31],
    "temperature": [-0.1, NAN, INF, -INF, True, "1", None, 10**400],
    "top_k": [-2, True, 1.0, None, 2**31],
    "top_p": [-0.01, 1.01, NAN, True, None],
    "min_p": [-0.01, 1.01, NAN, False, "0"],
    "repetition_penalty": [0, 0.0, -1.0, NAN, INF, True],
    "frequency_penalty": [NAN, INF, -INF, True, None],
    "presence_penalty": [NAN, INF, -INF, True, None],
    "stop": [("",), ("a", ""), ("a",) * 17, "abc", (1,), None],
    "stop_token_ids": [(-1,), (VOCAB,), (True,), (1.0,), 5],
    "ignore_eos": [1, None, "no"],
    "skip_special_tokens": [0],
    "include_stop": [1],
    "logit_bias": [{-1: 1.0}, {VOCAB: 1.0}, {"1": 1.0}, {1: NAN}, {1: INF}, {1: 100.5}, {1: -100.5}, {1: True}, [1]],
    "seed": [2**63, -(2**63) - 1, 1.0, True],
    "n": [0, -1, 129, True, None],
    "logprobs": [-1, 21, True, 1.0],
    "prompt_logprobs": [-1, 21, True],
}

GOOD: dict[str, list[Any]] = {
    "max_tokens": [None, 1, 2**31 - 1],
    "temperature": [0, 0.0, 1e-9, 2, 1e30],
    "top_k": [-1, 0, 1, VOCAB, 2**31 - 1],
    "top_p": [0, 0.0, 0.5, 1],
    "min_p": [0, 0.5, 1.0],
    "repetition_penalty": [1e-6, 1, 5.0],
    "frequency_penalty": [-2, 2.0, 100],
    "presence_penalty": [-2, 2.0],
    "stop": [(), ("a",) * 16, ["\n"]],
    "stop_token_ids": [(), (0, VOCAB - 1), [3]],
    "logit_bias": [{}, {0: -100, VOCAB - 1: 100.0}],
    "seed": [None, 0, -(2**63), 2**63 - 1],
    "n": [1, 128],
    "logprobs": [None, 0, 20],
    "prompt_logprobs": [None, 0, 20],
}


def _cases(table: dict[str, list[Any]]) -> list[Any]:
    return [
        pytest.param(name, value, id=f"{name}-{str(value)[:20]}") for name, values in table.items() for value in values
    ]


@pytest.mark.parametrize(("name", "value"), _cases(BAD))
def test_a_bad_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        validate_sampling_params(SamplingParams(**{name: value}), vocab_size=VOCAB)
    assert refused.value.param == name
    assert name in refused.value.message


@pytest.mark.parametrize(("name", "value"), _cases(GOOD))
def test_a_good_value_passes(name: str, value: Any) -> None:
    validate_sampling_params(SamplingParams(**{name: value}), vocab_size=VOCAB)


def test_every_field_is_checked() -> None:
    assert set(BAD) == set(SamplingParams.__struct_fields__)


def test_a_message_says_what_was_got_and_what_was_expected() -> None:
    with pytest.raises(InvalidRequest, match=r"^top_p has the value 1\.5, expected 0 to 1$"):
        validate_sampling_params(SamplingParams(top_p=1.5), vocab_size=VOCAB)
    with pytest.raises(InvalidRequest, match=r"token id 100.*ids run from 0 to 99"):
        validate_sampling_params(SamplingParams(stop_token_ids=(100,)), vocab_size=VOCAB)


def test_no_new_tokens_only_with_logprobs_of_the_prompt() -> None:
    validate_sampling_params(SamplingParams(max_tokens=0, prompt_logprobs=0), vocab_size=VOCAB)
    with pytest.raises(InvalidRequest, match="prompt_logprobs"):
        validate_sampling_params(SamplingParams(max_tokens=0, logprobs=1), vocab_size=VOCAB)


def test_min_tokens_may_reach_max_tokens_and_not_exceed_it() -> None:
    validate_sampling_params(SamplingParams(max_tokens=4, min_tokens=4), vocab_size=VOCAB)
    validate_sampling_params(SamplingParams(min_tokens=4), vocab_size=VOCAB)
    with pytest.raises(InvalidRequest) as refused:
        validate_sampling_params(SamplingParams(max_tokens=4, min_tokens=5), vocab_size=VOCAB)
    assert refused.value.param == "min_tokens"


def test_the_limit_of_logprobs_can_be_set() -> None:
    validate_sampling_params(SamplingParams(logprobs=50), vocab_size=VOCAB, max_logprobs=50)
    with pytest.raises(InvalidRequest, match="expected 0 to 5"):
        validate_sampling_params(SamplingParams(logprobs=6), vocab_size=VOCAB, max_logprobs=5)


def test_the_largest_float_is_finite() -> None:
    validate_sampling_params(SamplingParams(temperature=sys.float_info.max), vocab_size=VOCAB)
