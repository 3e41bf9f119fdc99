"""`PageTableCpu`: the host twin of the page table, and what the device's copy has yet to learn. Imports no torch."""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt

from core.mem_cache.page_update import PageUpdate

DUMMY_ROW = 0
"""The row that padding points to; never handed out, all its pages are the dummy page."""


@final
class PageTableCpu:
    """Rows of page ids: the pages of one running request each, in the order of its tokens.

    Args:
        max_rows: rows, the dummy row 0 included.
        max_pages: most pages of a row.
    """

    def __init__(self, max_rows: int, max_pages: int) -> None:
        self.max_rows = max_rows
        self.max_pages = max_pages
        self.table = np.zeros((max_rows, max_pages), np.int32)
        """`[max_rows, max_pages]` int32; of a row only the first `num_pages[row]` entries mean anything."""
        self.num_pages = np.zeros(max_rows, np.int32)
        """`[max_rows]` int32, pages in each row; read only."""
        self._num_sent = np.zeros(max_rows, np.int32)  # pages of each row that `take_updates` has reported
        self._is_used = np.zeros(max_rows, np.bool_)
        self._free_rows = list(range(max_rows - 1, DUMMY_ROW, -1))

    @property
    def num_free_rows(self) -> int:
        """Rows that `alloc_row` can hand out."""
        return len(self._free_rows)

    def alloc_row(self) -> int | None:
        """Take an empty row, the caller's until `free_row`; None if there is none."""
        if not self._free_rows:
            return None
        row = self._free_rows.pop()
        self._is_used[row] = True
        return row

    def free_row(self, row: int) -> None:
        """Give back a row and forget its pages, which the caller frees. What was not yet taken is never reported."""
        assert self._is_used[row], f"row {row} is free"
        self._is_used[row] = False
        self.num_pages[row] = 0
        self._num_sent[row] = 0
        self._free_rows.append(row)

    def append(self, row: int, page_ids: npt.NDArray[np.int32]) -> None:
        """Add pages to the end of a row. The array is copied."""
        assert self._is_used[row], f"row {row} is free"
        start = int(self.num_pages[row])
        end = start + len(page_ids)
        assert end <= self.max_pages, f"row {row}: {end} pages, room for {self.max_pages}"
        self.table[row, start:end] = page_ids
        self.num_pages[row] = end

    def append_many(self, rows: npt.NDArray[np.int32], page_ids: npt.NDArray[np.int32]) -> None:
        """Add one page to the end of each of several distinct rows: `page_ids[i]` to `rows[i]`. Copies both."""
        assert self._is_used[rows].all(), f"free: {rows[~self._is_used[rows]]}"
        columns = self.num_pages[rows]
        assert not len(rows) or columns.max() < self.max_pages, f"a row is full, room for {self.max_pages} pages"
        self.table[rows, columns] = page_ids
        self.num_pages[rows] = columns + 1

    def pages(self, row: int) -> npt.NDArray[np.int32]:
        """`[num_pages[row]]` pages of a row: a view, valid until the row is freed; later appends do not show in it."""
        return self.table[row, : self.num_pages[row]]

    def take_updates(self) -> PageUpdate:
        """The entries added since the last call, in rows that are still in use; the caller's to keep.

        No entry is listed twice, so they may be applied in any order. Mutates: the next call starts from here.
        """
        rows = np.flatnonzero(self.num_pages > self._num_sent).astype(np.int32)
        starts = self._num_sent[rows]
        counts = self.num_pages[rows] - starts
        ends = np.cumsum(counts, dtype=np.int32)
        total = int(ends[-1]) if len(rows) else 0
        # Entry i of a row whose entries begin at ends - counts lies in column starts + i - (ends - counts).
        columns = np.arange(total, dtype=np.int32) + np.repeat(starts - (ends - counts), counts)
        rows_of_entries = np.repeat(rows, counts)
        self._num_sent[rows] = self.num_pages[rows]
        return PageUpdate(rows_of_entries, columns, self.table[rows_of_entries, columns])
