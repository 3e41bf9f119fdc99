"""Random batches are as unkind as they say, and consistent."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model_executor.forward_mode import ForwardMode
from core.testing.attention_cases import AttentionCase, RowCase, build_case, build_geometry, decode_rows

row_cases = st.builds(RowCase, st.integers(0, 70), st.integers(1, 40), st.booleans())


def slots_of(case: AttentionCase, i: int) -> list[int]:
    """Slots of all tokens of row i, by the formula of the page table."""
    page_size = case.context.page_size
    table = case.context.page_table[case.batch.req_pool_indices[i]].tolist()
    return [table[token // page_size] * page_size + token % page_size for token in range(int(case.batch.seq_lens[i]))]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(row_cases, min_size=1, max_size=5),
    page_size=st.sampled_from([1, 3, 16]),
    shared_len=st.integers(0, 50),
    seed=st.integers(0, 9),
)
def test_a_case_is_consistent(rows: list[RowCase], page_size: int, shared_len: int, seed: int) -> None:
    geometry = build_geometry(num_qo_heads=2, num_kv_heads=1, head_dim=8)
    case = build_case(
        rows, mode=ForwardMode.EXTEND, geometry=geometry, page_size=page_size, shared_len=shared_len, seed=seed
    )
    batch, k_cache = case.batch, case.k_cache.flatten(0, 1)
    owned = [slots_of(case, i) for i in range(len(rows))]
    new = [
        slots[row.prefix_len :] if not row.padding else [0] * row.num_new
        for row, slots in zip(rows, owned, strict=True)
    ]

    assert batch.out_cache_loc.tolist() == [slot for slots in new for slot in slots]
    written = [slot for slots in new for slot in slots if slot >= page_size]
    assert len(written) == len(set(written)), "two new tokens in one slot"
    held = {slot for slots in owned for slot in slots}
    assert all(slot >= page_size for slot in held), "page 0 is nobody's"
    assert set((~k_cache.isnan()).all(dim=(1, 2)).nonzero().flatten().tolist()) == held
    assert set(k_cache.isnan().all(dim=(1, 2)).nonzero().flatten().tolist()) == set(range(len(k_cache))) - held
    torch.testing.assert_close(case.k, k_cache[batch.out_cache_loc], rtol=0, atol=0, equal_nan=True)
    pooled = case.context.kv_pool.get_kv_buffer(1)
    torch.testing.assert_close(pooled, (case.k_cache, case.v_cache), rtol=0, atol=0, equal_nan=True)
    assert all(bool(x.isnan().all()) for x in case.context.kv_pool.get_kv_buffer(0))
    assert batch.seq_lens_cpu == batch.seq_lens.tolist()
    assert 0 not in batch.req_pool_indices.tolist()


def test_pages_are_in_no_order_and_shared() -> None:
    case = build_case([RowCase(100, 20), RowCase(90, 10)], mode=ForwardMode.EXTEND, page_size=4, shared_len=40)
    first, second = (case.context.page_table[row].tolist() for row in case.batch.req_pool_indices.tolist())
    assert first[:10] == second[:10]
    assert not set(first[10:30]) & set(second[10:25])
    assert sorted(first[:30]) != first[:30]


def test_same_seed_same_case() -> None:
    first, second = (build_case(decode_rows(5, 9), mode=ForwardMode.DECODE, seed=3) for _ in range(2))
    torch.testing.assert_close(first.q, second.q, rtol=0, atol=0)
    torch.testing.assert_close(first.k_cache, second.k_cache, rtol=0, atol=0, equal_nan=True)


def test_decode_batches_have_no_extend_fields() -> None:
    batch = build_case(decode_rows(5, 0), mode=ForwardMode.DECODE).batch
    assert batch.extend_seq_lens is None
    assert batch.extend_seq_lens_cpu is None
    assert batch.seq_lens_cpu == [5, 0]
    assert batch.num_tokens == 2
