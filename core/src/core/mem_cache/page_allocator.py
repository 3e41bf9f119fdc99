"""`PageAllocator`: which pages of a KV pool are free. Host only; imports no torch.

Ownership. A page is in exactly one of three states:

- free: in this allocator;
- held: owned by one running request, which alone may write it and which frees it;
- cached: owned by the radix tree, which frees it when it evicts. Requests that read it lock its tree node.

Sharing goes through the tree alone, so a page needs no reference count of its own: the tree's locks are the counts.
Between held and cached a page changes hands without the allocator, see `RadixCache.insert`.
"""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt

DUMMY_PAGE = 0
"""The page that padding points to; never handed out."""


@final
class PageAllocator:
    """A stack of free page ids. All calls take time in proportion to the pages they touch.

    Args:
        num_pages: pages of the pool, the dummy page 0 included.
    """

    def __init__(self, num_pages: int) -> None:
        assert num_pages >= 1, "the dummy page always exists"
        self.num_pages = num_pages
        self._num_free = num_pages - 1
        # The top of the stack is the end of the valid part `[:num_free]`; the lowest ids are on top at first.
        self._stack = np.arange(num_pages - 1, 0, -1, dtype=np.int32)
        self._is_free = np.ones(num_pages, np.bool_)  # the dummy counts as free, so that freeing it is caught
        self._order = np.zeros(num_pages, np.int32)  # scratch of `_assert_held`

    @property
    def num_free(self) -> int:
        """Pages that `alloc` can hand out."""
        return self._num_free

    def alloc(self, num_pages: int) -> npt.NDArray[np.int32] | None:
        """Take pages, whose contents are undefined.

        Returns `[num_pages]` page ids, the caller's to keep, or None, with nothing changed, if fewer are free.
        """
        rest = self._num_free - num_pages
        if rest < 0:
            return None
        page_ids = self._stack[rest : self._num_free][::-1].copy()
        self._is_free[page_ids] = False
        self._num_free = rest
        return page_ids

    def free(self, page_ids: npt.NDArray[np.int32]) -> None:
        """Give back pages, in any order. The array is copied. A page that is free already fails an assertion."""
        num_pages = len(page_ids)
        if num_pages == 0:
            return
        assert self._assert_held(page_ids)
        self._is_free[page_ids] = True
        self._stack[self._num_free : self._num_free + num_pages] = page_ids[::-1]
        self._num_free += num_pages

    def are_free(self, page_ids: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """`[len(page_ids)]` whether each is free; the dummy page counts as free. For checks."""
        return self._is_free[page_ids]

    def _assert_held(self, page_ids: npt.NDArray[np.int32]) -> bool:
        """Assert that all are handed out and that none is listed twice; linear, and gone under `python -O`."""
        assert page_ids.min() > DUMMY_PAGE, f"not a page that is handed out: {page_ids.min()}"
        assert not self._is_free[page_ids].any(), f"free already: {page_ids[self._is_free[page_ids]]}"
        # Of a page listed twice the later position wins, so the earlier one reads back another number.
        order = np.arange(len(page_ids), dtype=np.int32)
        self._order[page_ids] = order
        assert (self._order[page_ids] == order).all(), f"listed twice: {page_ids[self._order[page_ids] != order]}"
        return True
