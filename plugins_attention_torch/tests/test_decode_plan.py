"""Decode chunks: every row once, little padding, few shapes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core import ForwardMode
from core.testing.attention_cases import AttentionCase, build_case, decode_rows
from plugin_attention_torch import decode
from plugin_attention_torch.backend import TorchAttentionBackend
from plugin_attention_torch.decode import split_by_length


@given(
    st.lists(st.integers(1, 20_000), min_size=1, max_size=300).map(lambda lens: sorted(lens, reverse=True)),
    st.integers(1, 50_000),
)
def test_chunks_hold_each_row_once_and_bound_the_work(lens: list[int], max_chunk_keys: int) -> None:
    chunks = split_by_length(lens, max_chunk_keys)
    assert [(c.start, c.stop) for c in chunks] == [
        (a, b) for a, b in zip([0, *[c.stop for c in chunks]], [c.stop for c in chunks], strict=False)
    ]
    assert chunks[-1].stop == len(lens)
    least = 0
    for chunk in chunks:
        rows = chunk.stop - chunk.start
        assert chunk.num_keys >= lens[chunk.start]
        assert chunk.num_keys % 32 == 0
        assert chunk.num_keys < lens[chunk.start] + 32
        assert rows == 1 or rows * chunk.num_keys <= max_chunk_keys
        least += sum(-(-n // 32) * 32 for n in lens[chunk.start : chunk.stop])
    # The work is at most twice the least, and one chunk's worth of calls for each that ends before the next halving.
    work = sum((c.stop - c.start) * c.num_keys for c in chunks)
    assert work <= 2 * least + 1024 * len(chunks)


def test_one_long_row_does_not_pad_the_short_ones() -> None:
    assert [(c.start, c.stop, c.num_keys) for c in split_by_length([8000, *[100] * 31], 1 << 20)] == [
        (0, 1, 8000),
        (1, 32, 128),
    ]


def test_few_short_rows_are_not_worth_a_chunk() -> None:
    assert [c.num_keys for c in split_by_length([500, 100, 10], 1 << 20)] == [512]


def calls_of(case: AttentionCase, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many chunks one layer attends over."""
    backend = TorchAttentionBackend(case.context)
    backend.init_forward_metadata(case.batch)
    chunks: list[object] = []
    forward_chunk = decode.Decode.forward_chunk
    monkeypatch.setattr(
        decode.Decode,
        "forward_chunk",
        lambda self, chunk, *rest: chunks.append(chunk) or forward_chunk(self, chunk, *rest),
    )
    backend.forward(case.q, case.k, case.v, case.layer, case.batch)
    return len(chunks)


def test_calls_do_not_grow_with_the_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    lens = [100 + i for i in range(64)]
    assert calls_of(build_case(decode_rows(*lens), mode=ForwardMode.DECODE), monkeypatch) <= 3


def test_rows_are_in_any_order_of_length() -> None:
    lens = [3, 900, 40, 1200, 1, 700, 2, 650]
    case = build_case(decode_rows(*lens), mode=ForwardMode.DECODE, dtype=torch.float32)
    backend = TorchAttentionBackend(case.context)
    backend.init_forward_metadata(case.batch)
    out = backend.forward(case.q, case.k, case.v, case.layer, case.batch)
    torch.testing.assert_close(out.double(), case.reference(), rtol=1e-4, atol=1e-5)


def test_inference_mode_and_normal_mode_mix() -> None:
    case = build_case(decode_rows(40, 30), mode=ForwardMode.DECODE)
    backend = TorchAttentionBackend(case.context)
    with torch.inference_mode():
        backend.init_forward_metadata(case.batch)
        first = backend.forward(case.q, case.k, case.v, case.layer, case.batch).clone()
    backend.init_forward_metadata(case.batch)
    second = backend.forward(case.q, case.k, case.v, case.layer, case.batch)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
