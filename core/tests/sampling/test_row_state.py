"""What rows keep: parameters, counts and bias, over re-use, and the flags that go with them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.sampling.batch import SamplingBatch
from core.sampling.params import SamplingParams
from core.sampling.row_state import SamplingRows
from core.sampling.rows import RowInit

VOCAB, MAX_ROWS = 12, 6
EOS = (10, 11)


def init(row: int, prompt: list[int] | None = None, output: list[int] | None = None, **params: Any) -> RowInit:
    params.setdefault("seed", row)
    prompt_ids, output_ids = np.array(prompt or [], np.int32), np.array(output or [], np.int32)
    return RowInit(row, SamplingParams(**params), EOS, prompt_ids, output_ids)


def new_rows(*rows: RowInit) -> SamplingRows:
    state = SamplingRows(MAX_ROWS, VOCAB, torch.device("cpu"))
    state.init_rows(rows)
    return state


def batch(state: SamplingRows, rows: list[int], below_min_tokens: tuple[int, ...] = ()) -> SamplingBatch:
    rows_cpu = np.array(rows, np.int32)
    return state.batch(rows_cpu, torch.tensor(rows, dtype=torch.int64), torch.arange(len(rows)), below_min_tokens)


def test_a_batch_has_the_parameters_of_its_rows_in_its_order() -> None:
    first = {"temperature": 0.5, "top_k": 3, "top_p": 0.25, "min_p": 0.125, "seed": -(2**63)}
    second = {"repetition_penalty": 1.5, "frequency_penalty": 0.5, "presence_penalty": -0.75, "seed": 2**63 - 1}
    drawn = batch(new_rows(init(4, **first), init(2, **second)), [2, 4])
    expected: dict[str, tuple[list[float], torch.dtype]] = {
        "temperature": ([1.0, 0.5], torch.float32),
        "top_k": ([VOCAB, 3], torch.int32),
        "top_p": ([1.0, 0.25], torch.float32),
        "min_p": ([0.0, 0.125], torch.float32),
        "seeds": ([2**63 - 1, -(2**63)], torch.int64),
        "positions": ([0, 1], torch.int64),
        "repetition_penalty": ([1.5, 1.0], torch.float32),
        "frequency_penalty": ([0.5, 0.0], torch.float32),
        "presence_penalty": ([-0.75, 0.0], torch.float32),
    }
    for name, (values, dtype) in expected.items():
        tensor = getattr(drawn, name)
        assert (tensor.tolist(), tensor.dtype) == (values, dtype), name


FLAGS = ("all_greedy", "any_greedy", "any_top_k", "any_top_p", "any_min_p", "any_penalty")


@pytest.mark.parametrize(
    ("params", "flags", "max_top_k"),
    [
        ([{"temperature": 0.0}], {"all_greedy", "any_greedy"}, None),
        ([{"temperature": 0.0, "top_k": 2, "top_p": 0.5, "min_p": 0.5}], {"all_greedy", "any_greedy"}, None),
        ([{"temperature": 1e-300}, {"temperature": 1e-40}], {"all_greedy", "any_greedy"}, None),
        ([{}], set(), VOCAB),
        ([{}, {"temperature": 0.0}], {"any_greedy"}, VOCAB),
        ([{"top_k": 3}, {"top_k": 5}, {"temperature": 0.0}], {"any_greedy", "any_top_k"}, 5),
        ([{"top_k": 3}, {"top_k": -1}], {"any_top_k"}, VOCAB),
        ([{"top_k": VOCAB}, {"top_k": 2**31 - 1}], set(), VOCAB),
        ([{"top_p": 0.9}], {"any_top_p"}, VOCAB),
        ([{"min_p": 0.1}], {"any_min_p"}, VOCAB),
        ([{"repetition_penalty": 1.1}], {"any_penalty"}, VOCAB),
        ([{"temperature": 0.0, "frequency_penalty": 0.1}], {"all_greedy", "any_greedy", "any_penalty"}, None),
        ([{"presence_penalty": -0.1}], {"any_penalty"}, VOCAB),
    ],
)
def test_flags_say_what_has_an_effect(params: list[dict[str, Any]], flags: set[str], max_top_k: int | None) -> None:
    rows = [init(1 + i, **given_params) for i, given_params in enumerate(params)]
    drawn = batch(new_rows(*rows), [row.row for row in rows])
    assert {name for name in FLAGS if getattr(drawn, name)} == flags
    assert drawn.max_top_k == max_top_k


def test_flags_are_those_of_the_rows_in_the_batch_alone() -> None:
    state = new_rows(init(1, temperature=0.0), init(2, top_p=0.5, logit_bias={1: 1.0}), init(3, presence_penalty=1.0))
    drawn = batch(state, [1])
    assert drawn.all_greedy
    assert not drawn.any_top_p
    assert drawn.logit_bias is drawn.prompt_mask is drawn.output_counts is drawn.banned is None
    assert batch(state, [2, 1]).any_top_p


def test_a_greedy_batch_is_neutral_and_needs_no_gather() -> None:
    state = new_rows(init(1, temperature=0.0, top_k=2), init(2, temperature=0.0, top_p=0.1), init(3))
    drawn = batch(state, [2, 1])
    assert drawn.temperature.tolist() == [0.0, 0.0]
    assert drawn.top_k.tolist() == [VOCAB, VOCAB]
    assert drawn.top_p.tolist() == [1.0, 1.0]
    assert drawn.repetition_penalty.tolist() == [1.0, 1.0]
    assert drawn.temperature.untyped_storage().data_ptr() == batch(state, [1]).temperature.untyped_storage().data_ptr()


def test_numbers_beyond_float32_stay_finite() -> None:
    state = new_rows(init(1, temperature=1e300, repetition_penalty=1e-300, frequency_penalty=-1e300), init(2))
    drawn = batch(state, [1])
    for name in ("temperature", "repetition_penalty", "frequency_penalty"):
        assert math.isfinite(getattr(drawn, name).item())
    assert drawn.repetition_penalty.item() > 0


def test_counts_start_from_prompt_and_output() -> None:
    drawn = batch(new_rows(init(2, [1, 3, 3], [4, 4, 3], presence_penalty=1.0)), [2])
    assert drawn.prompt_mask is not None
    assert drawn.output_counts is not None
    assert drawn.prompt_mask.nonzero()[:, 1].tolist() == [1, 3]
    assert drawn.output_counts.tolist() == [[0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0]]


def test_bias_is_of_its_row_and_gone_with_it() -> None:
    state = new_rows(init(1, logit_bias={0: -100.0, 5: 1.5}), init(2))
    drawn = batch(state, [2, 1])
    assert drawn.logit_bias is not None
    assert drawn.logit_bias[0].count_nonzero() == 0
    assert drawn.logit_bias[1].tolist() == [-100.0, 0, 0, 0, 0, 1.5, *[0] * 6]
    state.init_rows([init(1), init(3, logit_bias={2: 2.0})])
    assert batch(state, [1]).logit_bias is None
    beside = batch(state, [1, 3]).logit_bias
    assert beside is not None
    assert beside.nonzero().tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("params", "banned"),
    [
        ({"min_tokens": 3}, [10, 11]),
        ({"min_tokens": 3, "ignore_eos": True}, []),
        ({"min_tokens": 3, "stop_token_ids": (7, 11)}, [7, 10, 11]),
        ({"min_tokens": 3, "stop_token_ids": (7,), "ignore_eos": True}, [7]),
    ],
)
def test_what_would_end_a_row_is_banned_below_its_min_tokens(params: dict[str, Any], banned: list[int]) -> None:
    state = new_rows(init(1), init(2, **params), init(3))
    assert batch(state, [1, 2, 3]).banned is None
    pairs = batch(state, [1, 2, 3], below_min_tokens=(1,)).banned
    if not banned:
        assert pairs is None
        return
    assert pairs is not None
    assert pairs[0].tolist() == [1] * len(banned)
    assert pairs[1].tolist() == banned
    state.init_rows([init(2)])
    assert batch(state, [2], below_min_tokens=(0,)).banned is None


def test_bans_of_several_rows() -> None:
    state = new_rows(init(1, min_tokens=1), init(2, min_tokens=1, ignore_eos=True, stop_token_ids=(4,)))
    pairs = batch(state, [2, 1], below_min_tokens=(0, 1)).banned
    assert pairs is not None
    assert torch.stack(pairs).T.tolist() == [[0, 4], [1, 10], [1, 11]]


def test_an_empty_batch_and_no_new_rows_are_fine() -> None:
    state = new_rows()
    assert batch(state, []).temperature.shape == (0,)
    state.record(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))


@dataclass
class Model:
    """One row as a list of tokens."""

    params: SamplingParams
    prompt: list[int]
    output: list[int] = field(default_factory=list)


row_params = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.5]),
        "presence_penalty": st.sampled_from([0.0, 0.0, 0.5]),
        "repetition_penalty": st.sampled_from([1.0, 1.0, 1.5]),
        "logit_bias": st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100, width=32), max_size=2),
    }
)
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=6)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_rows_follow_their_requests_over_re_use(data: st.DataObject) -> None:
    """Start and re-use rows, draw tokens for some of them, and compare with a model that keeps plain lists."""
    state, models = SamplingRows(MAX_ROWS, VOCAB, torch.device("cpu")), dict[int, Model]()
    for _ in range(data.draw(st.integers(1, 8))):
        started = data.draw(st.lists(st.integers(1, MAX_ROWS - 1), unique=True, max_size=3))
        inits = []
        for row in started:
            params, prompt, output = data.draw(row_params), data.draw(tokens), data.draw(tokens)
            inits.append(init(row, prompt, output, **params))
            models[row] = Model(inits[-1].params, prompt, list(output))
        state.init_rows(inits)
        if not models:
            continue
        rows = data.draw(st.lists(st.sampled_from(sorted(models)), unique=True, min_size=1))
        _check(batch(state, rows), [models[row] for row in rows])
        drawn = [data.draw(st.integers(0, VOCAB - 1)) for _ in rows]
        state.record(torch.tensor(rows), torch.tensor(drawn))
        for row, token in zip(rows, drawn, strict=True):
            models[row].output.append(token)


def _check(drawn: SamplingBatch, models: list[Model]) -> None:
    penalised = [m.params.presence_penalty != 0 or m.params.repetition_penalty != 1 for m in models]
    assert drawn.any_penalty == any(penalised)
    assert drawn.all_greedy == all(m.params.temperature == 0 for m in models)
    assert drawn.temperature.tolist() == [m.params.temperature for m in models]
    assert drawn.presence_penalty.tolist() == [m.params.presence_penalty for m in models]
    if any(penalised):
        assert drawn.prompt_mask is not None
        assert drawn.output_counts is not None
        for index in np.flatnonzero(penalised):
            assert drawn.prompt_mask[index].nonzero().flatten().tolist() == sorted(set(models[index].prompt))
            assert drawn.output_counts[index].tolist() == [models[index].output.count(t) for t in range(VOCAB)]
    if any(m.params.logit_bias for m in models):
        assert drawn.logit_bias is not None
        assert drawn.logit_bias.tolist() == [[m.params.logit_bias.get(t, 0.0) for t in range(VOCAB)] for m in models]
    else:
        assert drawn.logit_bias is None
