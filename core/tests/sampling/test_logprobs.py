"""Log-probabilities against float64."""

from __future__ import annotations

import math

import pytest
import torch

from core.sampling.logprobs import gather_logprobs

GENERATOR = torch.Generator().manual_seed(3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_top", [0, 1, 5, 40, 1000])
def test_equals_float64(num_top: int, dtype: torch.dtype) -> None:
    logits = (torch.randn(7, 1000, generator=GENERATOR) * 6).to(dtype)
    token_ids = torch.randint(1000, (7,), generator=GENERATOR)
    before = logits.clone()
    logprobs, top_ids, top_logprobs = gather_logprobs(logits, token_ids, num_top)
    assert torch.equal(logits, before)
    expected = logits.double().log_softmax(-1)
    torch.testing.assert_close(logprobs.double(), expected[torch.arange(7), token_ids], rtol=0, atol=2e-5)
    assert (logprobs.dtype, top_ids.dtype, top_logprobs.dtype) == (torch.float32, torch.int64, torch.float32)
    assert top_ids.shape == top_logprobs.shape == (7, num_top)
    order = torch.sort(expected, dim=-1, descending=True, stable=True)
    assert torch.equal(top_ids, order.indices[:, :num_top])
    torch.testing.assert_close(top_logprobs.double(), order.values[:, :num_top], rtol=0, atol=2e-5)


def test_large_logits_do_not_overflow() -> None:
    logprobs, _, top = gather_logprobs(torch.tensor([[3e38, 3e38, -3e38]]), torch.tensor([1]), 3)
    assert logprobs.item() == pytest.approx(-math.log(2))
    assert top[0, :2].tolist() == pytest.approx([-math.log(2)] * 2)


def test_equal_logits_come_in_the_order_of_their_ids() -> None:
    _, top_ids, _ = gather_logprobs(torch.tensor([[1.0, 2.0, 2.0, 0.0, 2.0, 1.0]]), torch.tensor([0]), 5)
    assert top_ids.tolist() == [[1, 2, 4, 0, 5]]


def test_no_more_alternatives_than_the_vocabulary_has() -> None:
    _, top_ids, top_logprobs = gather_logprobs(torch.zeros(2, 3), torch.tensor([0, 1]), 20)
    assert top_ids.tolist() == [[0, 1, 2]] * 2
    assert top_logprobs.shape == (2, 3)


def test_a_broken_row_harms_no_other() -> None:
    logits = torch.tensor([[0.0, math.nan, 0.0], [-math.inf] * 3, [1.0, 1.0, -math.inf]])
    before = logits.clone()
    logprobs, top_ids, top_logprobs = gather_logprobs(logits, torch.tensor([0, 0, 2]), 2)
    assert torch.equal(logits.nan_to_num(9.0), before.nan_to_num(9.0))
    assert logprobs.tolist() == pytest.approx([-math.log(2), -math.inf, -math.inf])
    assert top_ids[0].tolist() == [0, 2]
    assert top_logprobs[2].tolist() == pytest.approx([-math.log(2)] * 2)
    assert not top_logprobs.isnan().any()
