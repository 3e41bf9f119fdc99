"""The float64 reference, against torch's own attention on dense rows and against hand-made numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from core.model_executor.forward_mode import ForwardMode
from core.testing.attention_cases import RowCase, build_case, build_geometry, decode_rows
from core.testing.attention_reference import eager_attention, reference_attention, visible_keys

Attention = Callable[..., torch.Tensor]
both = pytest.mark.parametrize("attention", [reference_attention, eager_attention])


def one_row(attention: Attention, q: list[float], k: list[float], v: list[float], **options: Any) -> list[float]:
    """One row, one head of size 1, pages of one token in descending order."""
    num_tokens = len(k)
    slots = list(range(num_tokens, 0, -1))
    k_cache, v_cache = (torch.full((num_tokens + 1, 1, 1, 1), float("nan"), dtype=torch.float64) for _ in "kv")
    k_cache[slots, 0, 0, 0], v_cache[slots, 0, 0, 0] = (torch.tensor(x, dtype=torch.float64) for x in (k, v))
    out = attention(
        torch.tensor(q, dtype=torch.float64).view(-1, 1, 1),
        k_cache,
        v_cache,
        torch.tensor([[0] * num_tokens, slots], dtype=torch.int32),
        torch.tensor([1]),
        torch.tensor([num_tokens]),
        torch.tensor([len(q)]),
        page_size=1,
        scale=1.0,
        **options,
    )
    result: list[float] = out.flatten().tolist()
    return result


@both
def test_equal_scores_give_the_mean_of_what_is_visible(attention: Attention) -> None:
    assert one_row(attention, [0, 0, 0], [1, 2, 3], [1, 2, 6]) == pytest.approx([1, 1.5, 3])


@both
def test_window_counts_the_querys_own_key(attention: Attention) -> None:
    assert one_row(attention, [0, 0, 0], [1, 2, 3], [1, 2, 6], window=2) == pytest.approx([1, 1.5, 4])
    assert one_row(attention, [0, 0, 0], [1, 2, 3], [1, 2, 6], window=1) == pytest.approx([1, 2, 6])


@both
def test_soft_cap_bounds_scores(attention: Attention) -> None:
    (out,) = one_row(attention, [100], [-100, 100], [0, 1], soft_cap=1.0)
    assert out == pytest.approx(math.exp(1) / (math.exp(1) + math.exp(-1)))


@both
def test_sink_takes_weight_and_gives_no_value(attention: Attention) -> None:
    (out,) = one_row(attention, [0], [1, 2], [1, 5], sinks=torch.tensor([math.log(2)], dtype=torch.float64))
    assert out == pytest.approx((1 + 5) / 4, rel=1e-6)


def test_reference_equals_torch_on_dense_rows() -> None:
    rows = [RowCase(0, 9), RowCase(30, 7), RowCase(17, 1)]
    case = build_case(rows, mode=ForwardMode.EXTEND, geometry=build_geometry(num_qo_heads=6, num_kv_heads=2))
    out, start = case.reference(), 0
    for i, row in enumerate(rows):
        pages = case.context.page_table[case.batch.req_pool_indices[i]].long()
        k, v = (x[pages].flatten(0, 1)[: row.seq_len].double().transpose(0, 1) for x in (case.k_cache, case.v_cache))
        q = case.q[start : start + row.num_new].double().transpose(0, 1)
        mask = visible_keys(row.num_new, row.seq_len, None)
        expected = F.scaled_dot_product_attention(q[None], k[None], v[None], mask, enable_gqa=True)[0].transpose(0, 1)
        torch.testing.assert_close(out[start : start + row.num_new], expected)
        start += row.num_new


@pytest.mark.parametrize("features", [{}, {"window": 5}, {"soft_cap": 2.0}, {"sinks": True}], ids=str)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2), (torch.float16, 1e-2)], ids=str
)
def test_eager_is_as_far_away_as_its_dtype(dtype: torch.dtype, tolerance: float, features: dict[str, Any]) -> None:
    case = build_case(decode_rows(3, 40, 0), mode=ForwardMode.DECODE, dtype=dtype, geometry=build_geometry(**features))
    eager = case.eager()
    assert eager.dtype is dtype
    torch.testing.assert_close(eager.double(), case.reference(), atol=tolerance, rtol=tolerance)
    assert not eager[2].any()


def test_visible_keys_of_the_last_queries() -> None:
    assert visible_keys(2, 4, None).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert visible_keys(2, 4, 2).int().tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]
