"""`AttentionBackendSuite`: what an attention backend must do, as tests that a plugin's repository inherits.

    class TestAcme(AttentionBackendSuite):
        backend = "acme"

Skips come only from declared capabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, cast

import pytest
import torch

from core.attention.capabilities import AttentionBackendSpec
from core.hookspecs import ATTENTION
from core.mem_cache.kv_pool import KVPool, KVPoolContext
from core.model_executor.forward_mode import ForwardMode
from core.plugins import discover, import_factory, load_chosen
from core.testing.attention_cases import RowCase, build_batch, build_geometry, decode_rows
from core.testing.attention_check import AttentionCheck
from core.testing.dense_kv_pool import DenseKVPool

DECODE, EXTEND, MIXED = ForwardMode.DECODE, ForwardMode.EXTEND, ForwardMode.MIXED
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ROWS: dict[ForwardMode, list[RowCase]] = {
    DECODE: decode_rows(1, 2, 15, 16, 17, 63, 64, 65, 130, 300),
    EXTEND: [RowCase(0, 1), RowCase(0, 17), RowCase(16, 16), RowCase(70, 33), RowCase(129, 1), RowCase(64, 5)],
    MIXED: [RowCase(0, 20), RowCase(70, 30), *decode_rows(1, 17, 100, 64)],
}
FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window": 21},
    "soft_cap": {"soft_cap": 2.0},
    "sinks": {"sinks": True},
    "all": {"window": 21, "soft_cap": 5.0, "sinks": True},
}

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_mode = pytest.mark.parametrize("mode", list(ROWS), ids=lambda mode: mode.value)
each_feature = pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES.keys())


@cache
def load_spec(name: str) -> AttentionBackendSpec:
    """The spec of an installed attention backend, found as the server finds it."""
    return cast(AttentionBackendSpec, load_chosen(discover().find(ATTENTION, name)))


class AttentionBackendSuite:
    """Attributes to set: `backend`, what users type; `device`; `pool`, which makes the pool that the backend reads."""

    backend: ClassVar[str]
    device: ClassVar[str] = "cpu"
    pool: ClassVar[Callable[[KVPoolContext], KVPool]] = DenseKVPool

    @pytest.fixture
    def check(self) -> AttentionCheck:
        """What runs the backend on random steps."""
        spec = load_spec(self.backend)
        return AttentionCheck(spec, import_factory(spec), self.device, type(self).pool)

    @each_mode
    @pytest.mark.parametrize("page_size", [1, 16, 64])
    @each_dtype
    def test_page_sizes_and_dtypes(
        self, check: AttentionCheck, mode: ForwardMode, page_size: int, dtype: torch.dtype
    ) -> None:
        check(ROWS[mode], mode=mode, page_size=page_size, dtype=dtype, shared_len=64)

    @each_mode
    @pytest.mark.parametrize("kv_dtype", DTYPES, ids=str)
    @each_dtype
    def test_pool_of_another_dtype(
        self, check: AttentionCheck, mode: ForwardMode, dtype: torch.dtype, kv_dtype: torch.dtype
    ) -> None:
        check(ROWS[mode], mode=mode, dtype=dtype, kv_dtype=kv_dtype)

    @each_mode
    @pytest.mark.parametrize(
        ("num_qo_heads", "num_kv_heads"),
        [(1, 1), (4, 4), (9, 3), (8, 2), (10, 2), (6, 1), (14, 2), (8, 1)],
    )
    def test_query_heads_share_kv_heads(
        self, check: AttentionCheck, mode: ForwardMode, num_qo_heads: int, num_kv_heads: int
    ) -> None:
        check(ROWS[mode], mode=mode, geometry=build_geometry(num_qo_heads=num_qo_heads, num_kv_heads=num_kv_heads))

    @each_dtype
    @pytest.mark.parametrize("head_dim", [32, 64, 72, 80, 96, 128, 256])
    def test_head_dims(self, check: AttentionCheck, head_dim: int, dtype: torch.dtype) -> None:
        check(ROWS[MIXED], mode=MIXED, geometry=build_geometry(head_dim=head_dim), dtype=dtype)

    @each_mode
    @each_dtype
    @pytest.mark.parametrize(("head_dim", "v_head_dim"), [(64, 32), (64, 128), (96, 64)])
    def test_values_of_another_head_dim(
        self, check: AttentionCheck, mode: ForwardMode, dtype: torch.dtype, head_dim: int, v_head_dim: int
    ) -> None:
        check(ROWS[mode], mode=mode, dtype=dtype, geometry=build_geometry(head_dim=head_dim, v_head_dim=v_head_dim))

    @each_mode
    @pytest.mark.parametrize("page_size", [1, 16])
    @pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 128])
    def test_window(self, check: AttentionCheck, mode: ForwardMode, page_size: int, window: int) -> None:
        check(ROWS[mode], mode=mode, geometry=build_geometry(window=window), page_size=page_size, shared_len=32)

    @each_mode
    @each_feature
    @each_dtype
    def test_features(
        self, check: AttentionCheck, mode: ForwardMode, dtype: torch.dtype, features: dict[str, Any]
    ) -> None:
        check(ROWS[mode], mode=mode, dtype=dtype, geometry=build_geometry(**features))

    @each_feature
    @pytest.mark.parametrize("lens", [(0,), (0, 5, 0, 70, 0), (0, 0, 0)], ids=str)
    def test_row_of_length_0_gives_zeros(
        self, check: AttentionCheck, lens: tuple[int, ...], features: dict[str, Any]
    ) -> None:
        check(decode_rows(*lens), mode=DECODE, geometry=build_geometry(**features))

    def test_padding_rows_of_a_mixed_step(self, check: AttentionCheck) -> None:
        rows = [RowCase(3, 20), RowCase(0, 4, padding=True), RowCase(40, 1), RowCase(0, 1, padding=True)]
        check(rows, mode=MIXED)

    @each_dtype
    @pytest.mark.parametrize(
        "lens",
        [(*[100] * 31, 2500), tuple(range(1, 400, 9)), (1500, 700, 300, 100, 40, 10, 1), (64,) * 40],
        ids=["one_long", "staircase", "halving", "equal"],
    )
    def test_lengths_of_a_decode_batch(self, check: AttentionCheck, lens: tuple[int, ...], dtype: torch.dtype) -> None:
        check(decode_rows(*lens), mode=DECODE, dtype=dtype)

    @each_feature
    def test_long_prompts(self, check: AttentionCheck, features: dict[str, Any]) -> None:
        check([RowCase(0, 700), RowCase(333, 600)], mode=EXTEND, geometry=build_geometry(head_dim=32, **features))

    @each_feature
    @each_dtype
    def test_decode_equals_extend_of_one_token(
        self, check: AttentionCheck, dtype: torch.dtype, features: dict[str, Any]
    ) -> None:
        geometry = build_geometry(**features)
        decode = check.case(ROWS[DECODE], mode=DECODE, geometry=geometry, dtype=dtype)
        extend = check.case(ROWS[DECODE], mode=EXTEND, geometry=geometry, dtype=dtype)
        check.compare(check.run(decode), extend, "decode of what extends by one token")
        check.compare(check.run(extend), decode, "extend by one token of what decodes")

    @each_feature
    @pytest.mark.parametrize("chunk", [1, 15, 16, 17, 64])
    def test_chunks_equal_the_whole(self, check: AttentionCheck, chunk: int, features: dict[str, Any]) -> None:
        whole = check.case([RowCase(0, 90)], mode=EXTEND, geometry=build_geometry(**features))
        # The chunks are rows of one batch, all over the same pages.
        rows = [RowCase(start, min(chunk, 90 - start)) for start in range(0, 90, chunk)]
        pages = whole.context.page_table[whole.batch.req_pool_indices].repeat(len(rows), 1)
        batch = build_batch(rows, EXTEND, list(range(len(rows))), whole.batch.out_cache_loc.tolist(), self.device)
        chunks = replace(whole, rows=rows, batch=batch, context=replace(whole.context, page_table=pages))
        check.compare(check.run(chunks), whole, f"chunks of {chunk}")

    @each_mode
    def test_one_instance_serves_steps_of_any_rows(self, check: AttentionCheck, mode: ForwardMode) -> None:
        case = check.case(ROWS[mode], mode=mode)
        backend = check.make(case)
        everyone = list(range(case.batch.bs))
        for rows in (everyone, [1], everyone[2:], [0, 3], everyone[:4], everyone):
            step = case.select(rows)
            check.compare(check.step(backend, step), step, f"a step of rows {rows}")

    @each_mode
    def test_result_is_fresh_and_nothing_else_is_written(self, check: AttentionCheck, mode: ForwardMode) -> None:
        case = check.case(ROWS[mode], mode=mode)
        context, batch = case.context, case.batch
        tensors = [case.q, case.k, case.v, context.page_table, batch.seq_lens, batch.req_pool_indices, batch.positions]
        tensors += [x for layer_id in range(2) for x in context.kv_pool.get_kv_buffer(layer_id)]
        before = [x.clone() for x in tensors]
        backend = check.make(case)
        first = check.step(backend, case)
        kept = first.clone()
        backend.forward(-case.q, case.k, case.v, case.layer, batch)
        torch.testing.assert_close(first, kept, rtol=0, atol=0)
        for after, expected in zip(tensors, before, strict=True):
            torch.testing.assert_close(after, expected, rtol=0, atol=0, equal_nan=True)

    @each_mode
    @each_feature
    def test_queries_and_keys_may_be_slices_of_one_tensor(
        self, check: AttentionCheck, mode: ForwardMode, features: dict[str, Any]
    ) -> None:
        case = check.case(ROWS[mode], mode=mode, geometry=build_geometry(**features))
        joined = torch.cat((case.q, case.k, case.v), dim=1)
        case.q, case.k, case.v = torch.split(joined, [x.shape[1] for x in (case.q, case.k, case.v)], dim=1)
        check.compare(check.run(case), case, "slices of one tensor")

    @each_mode
    @pytest.mark.parametrize("factor", [100.0, 0.0])
    def test_extreme_scores(self, check: AttentionCheck, mode: ForwardMode, factor: float) -> None:
        case = check.case(ROWS[mode], mode=mode)
        case.q.mul_(factor)
        check.compare(check.run(case), case, f"queries times {factor}")

    @each_mode
    @each_dtype
    def test_same_input_gives_same_bits(self, check: AttentionCheck, mode: ForwardMode, dtype: torch.dtype) -> None:
        if not check.spec.capabilities.deterministic:
            pytest.skip(f"{self.backend} declares deterministic=False")
        case = check.case(ROWS[mode], mode=mode, dtype=dtype)
        first = check.run(case)
        for _ in range(3):
            torch.testing.assert_close(check.run(case), first, rtol=0, atol=0)

    def test_rows_do_not_depend_on_each_other(self, check: AttentionCheck) -> None:
        if not check.spec.capabilities.batch_invariant:
            pytest.skip(f"{self.backend} declares batch_invariant=False")
        case = check.case(ROWS[DECODE], mode=DECODE)
        together, backend = check.run(case), check.make(case)
        for rows in ([0], [3], [9, 1], [2, 4, 5, 6, 7, 8]):
            torch.testing.assert_close(check.step(backend, case.select(rows)), together[rows], rtol=0, atol=0)
