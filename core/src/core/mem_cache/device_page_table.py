"""`PageTable`: the page table on the device, which attention backends read."""

from __future__ import annotations

from typing import final

import numpy as np
import torch

from core.mem_cache.page_update import PageUpdate


@final
class PageTable:
    """Twin of `PageTableCpu`, kept equal to it by that table's updates.

    Entries of a row that its owner has not written are those of an earlier owner, or 0: any of them is a page that
    exists, none of them may be read as the row's.

    Args:
        max_rows: rows, the dummy row 0 included.
        max_pages: most pages of a row.
        device: where it lives.
    """

    def __init__(self, max_rows: int, max_pages: int, device: torch.device) -> None:
        self.table = torch.zeros(max_rows, max_pages, dtype=torch.int32, device=device)
        """`[max_rows, max_pages]` int32 page ids; never moves, so that captured kernels may read it."""

    def apply(self, update: PageUpdate) -> None:
        """Write one update in place, ordered on the device's current stream. One transfer; waits for nothing."""
        if not len(update.rows):
            return
        staged = torch.from_numpy(np.stack([update.rows, update.columns, update.page_ids]))
        if self.table.device.type != "cpu":
            # torch's caching host allocator keeps the pinned buffer until the copy has been made.
            staged = staged.pin_memory().to(self.table.device, non_blocking=True)
        rows, columns, page_ids = staged
        self.table[rows, columns] = page_ids

    def slots(self, rows: torch.Tensor, positions: torch.Tensor, page_size: int) -> torch.Tensor:
        """The pool's slots of tokens, given their rows and their positions in them.

        Args:
            rows: `[n]` int64, on the device.
            positions: `[n]` int64, on the device.
            page_size: tokens a page.

        Returns `[n]` int64, new memory.
        """
        if page_size == 1:
            return self.table[rows, positions].long()
        pages = self.table[rows, torch.div(positions, page_size, rounding_mode="floor")].long()
        return pages.mul_(page_size).add_(positions.remainder(page_size))
