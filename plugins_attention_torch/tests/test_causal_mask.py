"""The strip that every causal mask is cut out of."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.testing.attention_reference import visible_keys
from plugin_attention_torch.extend import CausalMask


@given(
    window=st.none() | st.integers(1, 40),
    shapes=st.lists(st.tuples(st.integers(1, 256), st.integers(0, 700)), min_size=1, max_size=4),
)
def test_every_slice_is_the_mask_of_the_last_queries(window: int | None, shapes: list[tuple[int, int]]) -> None:
    mask = CausalMask(window, torch.float32, torch.device("cpu"))
    cut = [(n, n + before, mask.last_queries(n, n + before)) for n, before in shapes]
    for num_queries, num_keys, part in cut:
        assert torch.equal(part == 0, visible_keys(num_queries, num_keys, window))
        assert bool((part[part != 0] == float("-inf")).all())


@pytest.mark.parametrize("before", [0, 1, 256, 257, 5000])
def test_the_strip_is_made_once_for_a_reach(before: int) -> None:
    mask = CausalMask(None, torch.float32, torch.device("cpu"))
    first = mask.last_queries(10, 10 + before)
    again = mask.last_queries(7, 7 + before // 2)
    assert first.untyped_storage().data_ptr() == again.untyped_storage().data_ptr()
