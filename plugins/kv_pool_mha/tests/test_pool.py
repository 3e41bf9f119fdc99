"""The pool stores exactly what it is given, exactly where it is told."""

from __future__ import annotations

import pytest
import torch

from core import KVGroupGeometry, KVPoolContext, NoOptions
from plugin_kv_pool_mha.pool import MHAKVPool

CPU = torch.device("cpu")
NUM_PAGES = 6
SENTINEL = -77.0


def geometry(head_dim: int = 8, v_head_dim: int = 8, num_layers: int = 3, num_kv_heads: int = 2) -> KVGroupGeometry:
    return KVGroupGeometry(
        num_layers=num_layers,
        num_qo_heads=4,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        scale=1.0,
    )


def make(shape: KVGroupGeometry, page_size: int = 4, dtype: torch.dtype = torch.float32) -> MHAKVPool:
    pool = MHAKVPool(KVPoolContext(shape, NUM_PAGES, page_size, dtype, CPU, NoOptions()))
    for layer_id in range(shape.num_layers):
        for buffer in pool.get_kv_buffer(layer_id):
            buffer.fill_(SENTINEL)
    return pool


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize(("head_dim", "v_head_dim"), [(8, 8), (6, 10)])
def test_writes_touch_exactly_their_slots(page_size: int, head_dim: int, v_head_dim: int) -> None:
    shape = geometry(head_dim, v_head_dim)
    pool = make(shape, page_size)
    num_slots = NUM_PAGES * page_size
    slots = torch.randperm(num_slots, generator=torch.Generator().manual_seed(page_size))[: num_slots // 2]
    k, v = torch.randn(len(slots), 2, head_dim), torch.randn(len(slots), 2, v_head_dim)
    pool.set_kv_buffer(1, slots, k, v)

    for layer_id in range(shape.num_layers):
        for buffer, rows in zip(pool.get_kv_buffer(layer_id), (k, v), strict=True):
            assert buffer.shape == (NUM_PAGES, page_size, 2, rows.shape[-1])
            expected = torch.full_like(buffer, SENTINEL)
            if layer_id == 1:
                for slot, row in zip(slots.tolist(), rows, strict=True):
                    expected[slot // page_size, slot % page_size] = row
            assert torch.equal(buffer, expected)


def test_later_writes_leave_earlier_ones() -> None:
    pool = make(geometry())
    first, second = torch.randn(2, 2, 8), torch.randn(1, 2, 8)
    pool.set_kv_buffer(0, torch.tensor([5, 9]), first, first)
    pool.set_kv_buffer(0, torch.tensor([9]), second, second)
    keys, values = pool.get_kv_buffer(0)
    for buffer in (keys, values):
        assert torch.equal(buffer[1, 1], first[0])
        assert torch.equal(buffer[2, 1], second[0])


def test_slots_of_the_dummy_page_may_repeat() -> None:
    pool = make(geometry())
    k = torch.randn(4, 2, 8)
    pool.set_kv_buffer(2, torch.tensor([0, 0, 0, 21]), k, k)
    keys, values = pool.get_kv_buffer(2)
    for buffer in (keys, values):
        assert torch.equal(buffer[5, 1], k[3])
        assert (buffer[1:5] == SENTINEL).all()


def test_rows_may_be_strided() -> None:
    """A model hands over slices of one projection of queries, keys and values."""
    pool = make(geometry())
    projected = torch.randn(3, 4 * 8 + 2 * 8 + 2 * 8)
    k = projected[:, 32:48].view(3, 2, 8)
    v = projected[:, 48:].view(3, 2, 8)
    assert not k.is_contiguous()
    slots = torch.tensor([4, 7, 12])
    pool.set_kv_buffer(0, slots, k, v)
    keys, values = pool.get_kv_buffer(0)
    assert torch.equal(keys.flatten(0, 1)[slots], k)
    assert torch.equal(values.flatten(0, 1)[slots], v)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_are_converted(stored: torch.dtype, given: torch.dtype) -> None:
    pool = make(geometry(), dtype=stored)
    k, v = torch.randn(2, 2, 8).to(given), torch.randn(2, 2, 8).to(given)
    slots = torch.tensor([6, 18])
    pool.set_kv_buffer(0, slots, k, v)
    for buffer, rows in zip(pool.get_kv_buffer(0), (k, v), strict=True):
        assert buffer.dtype == stored
        assert torch.equal(buffer.flatten(0, 1)[slots], rows.to(stored))


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_per_page_is_what_is_allocated(page_size: int, dtype: torch.dtype) -> None:
    shape = geometry(head_dim=6, v_head_dim=10)
    pool = make(shape, page_size, dtype)
    storages = {
        buffer.untyped_storage().data_ptr(): buffer.untyped_storage().nbytes()
        for layer_id in range(shape.num_layers)
        for buffer in pool.get_kv_buffer(layer_id)
    }
    assert sum(storages.values()) == NUM_PAGES * MHAKVPool.bytes_per_page(shape, page_size, dtype)


def test_layout_describes_the_buffers() -> None:
    pool = make(geometry(head_dim=6, v_head_dim=10), page_size=16, dtype=torch.float16)
    layout = pool.layout
    keys, values = pool.get_kv_buffer(0)
    assert layout.axis_order == "NHD"
    assert keys.shape[1:] == (layout.page_size, layout.num_kv_heads, layout.head_dim)
    assert values.shape[1:] == (layout.page_size, layout.num_kv_heads, layout.v_head_dim)
    assert layout.dtype == keys.dtype == values.dtype


def test_buffers_never_move() -> None:
    pool = make(geometry())
    before = [buffer.data_ptr() for buffer in pool.get_kv_buffer(1)]
    k = torch.randn(1, 2, 8)
    pool.set_kv_buffer(1, torch.tensor([4]), k, k)
    assert [buffer.data_ptr() for buffer in pool.get_kv_buffer(1)] == before
