"""`KVMemory`: the host's books of the cache, as the scheduler sees them. Imports no torch.

It joins the page allocator, the page table and the radix cache, so that the scheduler speaks of tokens and leases, not
of pages. Every page is in exactly one state: free, cached (owned by the tree) or held (owned by one lease).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from core.mem_cache.page_allocator import PageAllocator
from core.mem_cache.page_table import PageTableCpu
from core.mem_cache.page_update import PageUpdate
from core.mem_cache.radix_cache import NodeHandle, RadixCache, check_accounting


class Lease:
    """What a running request holds of the cache: a row, a lock on a cached prefix, and pages of its own.

    Attributes:
        row: its row of the page table.
        extra_key: of its prefix.
        num_cached_tokens: tokens that the prefix cache gave at the start.
        num_pages: pages in its row.
    """

    __slots__ = ("extra_key", "handle", "num_cached_tokens", "num_pages", "num_published", "row")

    def __init__(self, row: int, extra_key: str, handle: NodeHandle, num_cached_tokens: int, num_pages: int) -> None:
        self.row = row
        self.extra_key = extra_key
        self.handle = handle
        self.num_cached_tokens = num_cached_tokens
        self.num_pages = num_pages
        # Pages before this index are the tree's, kept by the handle's lock; the others are the lease's own.
        self.num_published = num_pages


class KVMemory:
    """Books of one KV group.

    Args:
        num_pages: pages of the pool, the dummy page 0 included.
        page_size: tokens a page.
        max_rows: rows of the page table, the dummy row 0 included.
        max_context_len: most tokens of a row.
        share_prefixes: whether the radix cache keeps anything.
    """

    def __init__(
        self, *, num_pages: int, page_size: int, max_rows: int, max_context_len: int, share_prefixes: bool
    ) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self.allocator = PageAllocator(num_pages)
        self.page_table = PageTableCpu(max_rows, self.pages_for(max_context_len))
        self.cache = RadixCache(page_size, self.allocator, enabled=share_prefixes)
        self.num_held_pages = 0

    def pages_for(self, num_tokens: int) -> int:
        """Pages that `num_tokens` tokens take."""
        return -(-num_tokens // self.page_size)

    @property
    def max_total_tokens(self) -> int:
        """Tokens that one request may hold when it is alone."""
        return (self.num_pages - 1) * self.page_size

    @property
    def available_pages(self) -> int:
        """Pages that are free or can be evicted now."""
        return self.allocator.num_free + self.cache.evictable_pages

    def open(self, token_ids: npt.NDArray[np.int32], extra_key: str, *, use_cache: bool) -> Lease | None:
        """Take a row, and lock the longest cached prefix of `token_ids`, at least one token short of the whole.

        Returns None if there is no row. The caller ends the lease with `close`.
        """
        row = self.page_table.alloc_row()
        if row is None:
            return None
        # The last token is always computed: its logits are what the request needs.
        match = self.cache.match(token_ids[:-1] if use_cache else token_ids[:0], extra_key)
        self.cache.lock(match.handle)
        self.page_table.append(row, match.page_ids)
        return Lease(row, extra_key, match.handle, match.num_tokens, len(match.page_ids))

    def peek(self, token_ids: npt.NDArray[np.int32], extra_key: str) -> int:
        """Tokens of the longest cached prefix, as `open` would find it. Locks nothing."""
        return self.cache.peek(token_ids[:-1], extra_key)

    def _take(self, num_pages: int) -> npt.NDArray[np.int32] | None:
        shortage = num_pages - self.allocator.num_free
        if shortage > 0 and self.cache.evictable_pages >= shortage:
            self.cache.evict(shortage)
        page_ids = self.allocator.alloc(num_pages)
        if page_ids is not None:
            self.num_held_pages += num_pages
        return page_ids

    def grow(self, lease: Lease, num_tokens: int) -> bool:
        """Give the lease pages for `num_tokens` tokens, evicting if need be. False, and unchanged, if too few."""
        wanted = self.pages_for(num_tokens) - lease.num_pages
        if wanted <= 0:
            return True
        page_ids = self._take(wanted)
        if page_ids is None:
            return False
        self.page_table.append(lease.row, page_ids)
        lease.num_pages += wanted
        return True

    def grow_by_one(self, leases: Sequence[Lease]) -> bool:
        """Give each lease one page, all or nothing; True if done."""
        if not leases:
            return True
        page_ids = self._take(len(leases))
        if page_ids is None:
            return False
        self.page_table.append_many(np.fromiter((lease.row for lease in leases), np.int32, len(leases)), page_ids)
        for lease in leases:
            lease.num_pages += 1
        return True

    def publish(self, lease: Lease, token_ids: npt.NDArray[np.int32]) -> None:
        """Hand the full pages of `token_ids`, which launched steps write, to the tree, for others to share.

        Every step that reads such a page is launched with or after the step that writes it, and within one step a
        layer's keys and values are written before any of them is read, so that requests of the same batch can share.
        """
        num_full = len(token_ids) // self.page_size
        if num_full <= lease.num_published or not self.cache.enabled:
            return
        token_ids = token_ids[: num_full * self.page_size]
        if self.cache.peek(token_ids, lease.extra_key) > lease.num_published * self.page_size:
            # Another request published these tokens first. The lease keeps its own copies, which launched steps
            # write, until it ends: locking the others as well could take more pages than admission set aside.
            return
        page_ids = self.page_table.pages(lease.row)[:num_full]
        handle = self.cache.insert(token_ids, page_ids, lease.extra_key).handle
        self.cache.lock(handle)
        self.cache.unlock(lease.handle)
        lease.handle = handle
        self.num_held_pages -= num_full - lease.num_published
        lease.num_published = num_full

    def close(self, lease: Lease, token_ids: npt.NDArray[np.int32]) -> None:
        """End the lease: the full pages of `token_ids` stay in the tree, its other pages and its row become free.

        Steps in flight may still write the freed pages; whoever gets them next is launched after those steps.
        """
        page_ids = self.page_table.pages(lease.row)[: lease.num_pages].copy()
        first_own = lease.num_published
        num_full = len(token_ids) // self.page_size
        freed = page_ids[first_own:]
        if self.cache.enabled and num_full > first_own:
            kept = self.cache.insert(token_ids[: num_full * self.page_size], page_ids[:num_full], lease.extra_key)
            freed = np.concatenate([kept.returned_page_ids, page_ids[num_full:]])
        self.num_held_pages -= len(page_ids) - first_own
        self.allocator.free(freed)
        self.cache.unlock(lease.handle)
        self.page_table.free_row(lease.row)

    def take_updates(self) -> PageUpdate:
        """What the device's page table must learn before the next step."""
        return self.page_table.take_updates()

    def flush(self) -> int:
        """Drop every cached prefix that nobody reads; how many pages became free."""
        return self.cache.flush()

    def check(self) -> None:
        """Assert that free + cached + held = all pages."""
        check_accounting(self.allocator, self.cache, self.num_held_pages)
