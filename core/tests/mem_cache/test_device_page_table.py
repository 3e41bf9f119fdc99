"""The device's page table: it follows the host's, and turns positions into slots."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core.mem_cache.device_page_table import PageTable
from core.mem_cache.page_table import PageTableCpu

CPU = torch.device("cpu")


def test_follows_the_host_table() -> None:
    rng = np.random.default_rng(0)
    host, device = PageTableCpu(6, 8), PageTable(6, 8, CPU)
    address = device.table.data_ptr()
    rows: list[int] = []
    for _ in range(200):
        if rows and (rng.random() < 0.3 or not host.num_free_rows):
            host.free_row(rows.pop(int(rng.integers(len(rows)))))
        row = host.alloc_row()
        assert row is not None
        rows.append(row)
        host.append(row, rng.integers(1, 99, int(rng.integers(0, 4))).astype(np.int32))
        growing = np.array([r for r in rows if host.num_pages[r] < 8], np.int32)
        host.append_many(growing, rng.integers(1, 99, len(growing)).astype(np.int32))
        if rng.random() < 0.5:
            device.apply(host.take_updates())
            for r in rows:
                assert device.table[r, : host.num_pages[r]].tolist() == host.pages(r).tolist()
    assert device.table.dtype == torch.int32
    assert device.table.data_ptr() == address
    assert not device.table[0].any(), "padding points to row 0, whose pages are the dummy"


@pytest.mark.parametrize("page_size", [1, 4, 16, 64])
def test_slots(page_size: int) -> None:
    table = PageTable(4, 8, CPU)
    generator = torch.Generator().manual_seed(page_size)
    table.table.copy_(torch.randint(1, 2**20, (4, 8), generator=generator))
    rows = torch.randint(0, 4, (50,), generator=generator)
    positions = torch.randint(0, 8 * page_size, (50,), generator=generator)
    slots = table.slots(rows, positions, page_size)
    assert slots.dtype == torch.int64
    expected = [
        int(table.table[row, position // page_size]) * page_size + position % page_size
        for row, position in zip(rows.tolist(), positions.tolist(), strict=True)
    ]
    assert slots.tolist() == expected


def test_slots_past_two_to_the_31() -> None:
    table = PageTable(2, 1, CPU)
    table.table[1, 0] = 2**31 - 1
    slots = table.slots(torch.tensor([1]), torch.tensor([63]), 64)
    assert slots.tolist() == [(2**31 - 1) * 64 + 63]
