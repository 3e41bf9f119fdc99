"""The host's page table: rows, pages, and the updates that it reports."""

from __future__ import annotations

import numpy as np
import pytest

from core.mem_cache.page_table import PageTableCpu
from core.mem_cache.page_update import PageUpdate


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def entries(update: PageUpdate) -> list[tuple[int, int, int]]:
    for array in (update.rows, update.columns, update.page_ids):
        assert array.dtype == np.int32
    return sorted(zip(update.rows.tolist(), update.columns.tolist(), update.page_ids.tolist(), strict=True))


def row_of(table: PageTableCpu) -> int:
    row = table.alloc_row()
    assert row is not None
    return row


def test_every_row_but_the_dummy_is_handed_out_once() -> None:
    table = PageTableCpu(4, 2)
    assert sorted([row_of(table), row_of(table), row_of(table)]) == [1, 2, 3]
    assert table.alloc_row() is None
    assert table.num_free_rows == 0
    table.free_row(2)
    assert table.alloc_row() == 2


def test_pages_are_kept_in_order() -> None:
    table = PageTableCpu(3, 4)
    row = row_of(table)
    assert table.pages(row).tolist() == []
    table.append(row, ids(7, 3))
    table.append(row, ids())
    table.append_many(ids(row), ids(5))
    assert table.pages(row).tolist() == [7, 3, 5]
    assert table.num_pages[row] == 3


def test_append_many_adds_one_page_to_each() -> None:
    table = PageTableCpu(4, 3)
    rows = [row_of(table) for _ in range(3)]
    table.append(rows[1], ids(9, 8))
    table.append_many(ids(rows[2], rows[1]), ids(4, 6))
    assert [table.pages(row).tolist() for row in rows] == [[], [9, 8, 6], [4]]
    table.append_many(ids(), ids())


def test_updates_are_reported_once() -> None:
    table = PageTableCpu(4, 4)
    first, second = row_of(table), row_of(table)
    table.append(first, ids(7, 3))
    table.append(second, ids(5))
    table.append_many(ids(second, first), ids(1, 2))
    assert entries(table.take_updates()) == [
        (first, 0, 7),
        (first, 1, 3),
        (first, 2, 2),
        (second, 0, 5),
        (second, 1, 1),
    ]
    assert entries(table.take_updates()) == []
    table.append_many(ids(second), ids(4))
    assert entries(table.take_updates()) == [(second, 2, 4)]


def test_updates_of_a_row_that_changed_hands_are_those_of_its_last_owner() -> None:
    table = PageTableCpu(2, 4)
    row = row_of(table)
    table.append(row, ids(7, 3))
    table.free_row(row)
    assert entries(table.take_updates()) == []
    assert row_of(table) == row
    table.append(row, ids(5))
    assert entries(table.take_updates()) == [(row, 0, 5)]
    table.free_row(row)
    assert row_of(table) == row
    table.append(row, ids(6, 2))
    assert entries(table.take_updates()) == [(row, 0, 6), (row, 1, 2)]


def test_updates_are_the_callers_to_keep() -> None:
    table = PageTableCpu(2, 4)
    row = row_of(table)
    table.append(row, ids(7))
    update = table.take_updates()
    table.free_row(row)
    row_of(table)
    table.append(row, ids(2))
    assert entries(update) == [(row, 0, 7)]


def test_misuse_is_caught() -> None:
    table = PageTableCpu(3, 2)
    row = row_of(table)
    with pytest.raises(AssertionError, match="3 pages, room for 2"):
        table.append(row, ids(1, 2, 3))
    table.append(row, ids(1, 2))
    with pytest.raises(AssertionError, match="a row is full"):
        table.append_many(ids(row), ids(3))
    table.free_row(row)
    for misuse in (lambda: table.free_row(row), lambda: table.append(row, ids(1)), lambda: table.free_row(0)):
        with pytest.raises(AssertionError, match="is free"):
            misuse()
    with pytest.raises(AssertionError, match="free: "):
        table.append_many(ids(row), ids(1))
