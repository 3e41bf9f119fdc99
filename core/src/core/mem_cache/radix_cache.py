"""`RadixCache`: which prefixes of token ids have their keys and values in which pages. Host only; imports no torch.

A compressed tree over runs of `page_size` token ids, after RadixAttention (Zheng et al. 2024, "SGLang: Efficient
Execution of Structured Language Model Programs"); here nodes split at page boundaries only, and eviction takes single
pages from the end of a leaf.

A running request's life with the tree:

1. `match` its prompt, `lock` the handle. The pages that it got are the tree's, and stay as long as the lock.
2. Compute the rest into pages of its own.
3. `insert` the longer prefix with all its pages, `lock` the new handle, `unlock` the old one. Pages that continue
   the tree now belong to the tree. Where another request has inserted the same tokens in the meantime, the tree keeps
   what it had: these duplicates are in `InsertResult.returned_page_ids`, and stay the request's own. It goes on
   reading and writing its own, and frees them at its end.
4. At its end, `insert` again if the output shall be kept, free `returned_page_ids`, `unlock`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from core.mem_cache.eviction_order import EvictionOrder
from core.mem_cache.page_allocator import PageAllocator
from core.mem_cache.radix_node import RadixNode

NodeHandle = RadixNode
"""Stands for one prefix in the tree. Opaque: for `lock` and `unlock` only."""

_TOKEN_BYTES = np.dtype(np.int32).itemsize
_NO_PAGES = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """The longest cached prefix.

    Attributes:
        page_ids: its pages, `[num_tokens // page_size]`; the array is the caller's, the pages are the tree's and may
            be read as long as the handle is locked.
        num_tokens: its length, a multiple of the page size.
        handle: to be locked before the next `evict` or `flush`; after one of them an unlocked handle is void.
    """

    page_ids: npt.NDArray[np.int32]
    num_tokens: int
    handle: NodeHandle


@dataclass(frozen=True, slots=True)
class InsertResult:
    """What became of an inserted prefix.

    Attributes:
        page_ids: the tree's pages of the whole prefix; the array is the caller's.
        num_already_cached: how many of them, from the first on, the tree had before. From there on they are the
            caller's, which the tree has taken over.
        returned_page_ids: those of the caller's pages that are not in the tree, because it has other pages for the
            same tokens. They are still the caller's.
        handle: of the prefix, to be locked before the next `evict` or `flush`.
    """

    page_ids: npt.NDArray[np.int32]
    num_already_cached: int
    returned_page_ids: npt.NDArray[np.int32]
    handle: NodeHandle


@final
class RadixCache:
    """The tree, and the order in which it gives pages back. Token ids are `[n]` int32 arrays throughout.

    Args:
        page_size: tokens a page.
        allocator: takes the pages that are evicted.
        enabled: False makes a cache that never holds anything.
    """

    def __init__(self, page_size: int, allocator: PageAllocator, enabled: bool = True) -> None:
        self.page_size = page_size
        self.enabled = enabled
        self._allocator = allocator
        self._page_bytes = page_size * _TOKEN_BYTES
        self._root = RadixNode(None, b"", b"", _NO_PAGES)
        self._cached_pages = 0
        self._protected_pages = 0
        self._now = 0  # the time, counted in matches and inserts
        self._order = EvictionOrder()

    @property
    def cached_pages(self) -> int:
        """Pages that the tree owns."""
        return self._cached_pages

    @property
    def protected_pages(self) -> int:
        """Pages that the tree owns and a lock keeps."""
        return self._protected_pages

    @property
    def evictable_pages(self) -> int:
        """Pages that `evict` can free now."""
        return self._cached_pages - self._protected_pages

    def match(self, token_ids: npt.NDArray[np.int32], extra_key: str) -> PrefixMatch:
        """Find the longest cached prefix of whole pages, and mark it as just used.

        May split a node, which moves no page and voids no handle.
        """
        data = self._whole_pages(token_ids)
        nodes, offset, part = self._walk(data, extra_key)
        if part is not None:
            child, num_pages = part
            nodes.append(self._split(child, num_pages))
            offset += num_pages * self._page_bytes
        self._touch(nodes)
        return PrefixMatch(_pages_of(nodes), offset // _TOKEN_BYTES, nodes[-1] if nodes else self._root)

    def peek(self, token_ids: npt.NDArray[np.int32], extra_key: str) -> int:
        """Tokens of the longest cached prefix, as `match` would find it. Mutates nothing."""
        _, offset, part = self._walk(self._whole_pages(token_ids), extra_key)
        return offset // _TOKEN_BYTES + (part[1] * self.page_size if part is not None else 0)

    def insert(self, token_ids: npt.NDArray[np.int32], page_ids: npt.NDArray[np.int32], extra_key: str) -> InsertResult:
        """Add a prefix, and mark it as just used. Tokens past the last whole page, and their page, are ignored.

        Args:
            token_ids: the whole prefix, from the first token on.
            page_ids: a page for each whole page of tokens. Those that the tree lacks pass to the tree.
            extra_key: requests with different ones share nothing.
        """
        if not self.enabled:
            return InsertResult(_NO_PAGES, 0, page_ids.copy(), self._root)
        num_pages = len(token_ids) // self.page_size
        assert len(page_ids) >= num_pages, f"{len(page_ids)} pages for {num_pages} pages of tokens"
        match = self.match(token_ids, extra_key)
        known = len(match.page_ids)
        offered = page_ids[:known]
        returned = offered[offered != match.page_ids]
        if known == num_pages:
            return InsertResult(match.page_ids, known, returned, match.handle)
        data = self._whole_pages(token_ids)[known * self._page_bytes :]
        # The tree keeps the array: the caller's may be a view of a row that changes hands.
        new_page_ids = page_ids[known:num_pages].copy()
        leaf = RadixNode(match.handle, self._edge_key(match.handle, data, 0, extra_key), data, new_page_ids)
        match.handle.children[leaf.edge_key] = leaf
        leaf.last_access = self._now
        self._cached_pages += leaf.num_pages
        self._order.offer(leaf)
        return InsertResult(np.concatenate([match.page_ids, new_page_ids]), known, returned, leaf)

    def lock(self, handle: NodeHandle) -> None:
        """Keep the handle's whole prefix from eviction, until as many `unlock`s. Cost: the nodes up to the root."""
        node = handle
        while node.parent is not None:
            assert node.num_pages, "this handle is void: its pages were evicted before it was locked"
            if node.num_locks == 0:
                self._protected_pages += node.num_pages
            node.num_locks += 1
            node = node.parent

    def unlock(self, handle: NodeHandle) -> None:
        """Undo one `lock`. The prefix stays cached, and its place in the order of eviction does not change."""
        node = handle
        while node.parent is not None:
            assert node.num_locks > 0, "unlocked more often than locked"
            node.num_locks -= 1
            if node.num_locks == 0:
                self._protected_pages -= node.num_pages
                self._order.offer(node)
            node = node.parent

    def evict(self, num_pages: int) -> int:
        """Free pages to the allocator: of the unlocked leaf least recently used, from its end; then of the next.

        Returns how many were freed: `num_pages`, or all that are unlocked if they are fewer. Takes time in proportion
        to the pages of the leaves that it shortens, whatever the size of the tree. Voids unlocked handles.
        """
        freed: list[npt.NDArray[np.int32]] = []
        missing = num_pages
        while missing > 0 and (leaf := self._order.pop()) is not None:
            kept = max(leaf.num_pages - missing, 0)
            missing -= leaf.num_pages - kept
            freed.append(leaf.page_ids[kept:])
            self._shorten(leaf, kept)
        if freed:
            self._cached_pages -= num_pages - missing
            self._allocator.free(np.concatenate(freed))
        return num_pages - missing

    def flush(self) -> int:
        """Free every page that no lock keeps; how many. Voids unlocked handles."""
        return self.evict(self.evictable_pages)

    def check(self) -> None:
        """Assert every internal invariant. Walks the whole tree: for tests, and when idle."""
        nodes = self._root.descendants()
        for node in nodes:
            node.check(self._page_bytes)
        self._order.check(nodes)
        page_ids = _pages_of(nodes)
        assert len(page_ids) == self._cached_pages == len(np.unique(page_ids)), "pages miscounted, or listed twice"
        assert not self._allocator.are_free(page_ids).any(), "a cached page is free"
        assert self._protected_pages == sum(node.num_pages for node in nodes if node.num_locks)

    def _whole_pages(self, token_ids: npt.NDArray[np.int32]) -> bytes:
        """The bytes of the tokens that fill pages."""
        assert token_ids.dtype == np.int32
        return token_ids[: len(token_ids) // self.page_size * self.page_size].tobytes()

    def _edge_key(self, parent: RadixNode, data: bytes, offset: int, extra_key: str) -> bytes:
        """What tells a node from its siblings: its first page, and below the root the extra key as well.

        The page's part has a fixed length, so that no two pairs run together. `surrogatepass`, as an extra key may be
        any string that JSON can spell.
        """
        page = data[offset : offset + self._page_bytes]
        return page if parent is not self._root else extra_key.encode("utf-8", "surrogatepass") + page

    def _walk(self, data: bytes, extra_key: str) -> tuple[list[RadixNode], int, tuple[RadixNode, int] | None]:
        """Follow `data` down. Returns the nodes that match whole, the bytes that they cover, and the next node with the
        number of its pages that still match, if there is such a node.
        """
        node, offset, nodes = self._root, 0, list[RadixNode]()
        while offset < len(data):
            child = node.children.get(self._edge_key(node, data, offset, extra_key))
            if child is None:
                break
            if not data.startswith(child.data, offset):
                return nodes, offset, (child, self._common_pages(child.data, data, offset))
            nodes.append(child)
            offset += len(child.data)
            node = child
        return nodes, offset, None

    def _common_pages(self, edge: bytes, data: bytes, offset: int) -> int:
        """How many pages of `edge` and of `data` from `offset` on are equal; not all of them are."""
        num_tokens = min(len(edge), len(data) - offset) // _TOKEN_BYTES
        ours = np.frombuffer(edge, np.int32, num_tokens)
        differs = ours != np.frombuffer(data, np.int32, num_tokens, offset)
        first = int(differs.argmax())
        return (first if differs[first] else num_tokens) // self.page_size

    def _split(self, node: RadixNode, num_pages: int) -> RadixNode:
        """Put a new node with the first pages of `node` above it, and return it, for its time of use to be set.

        `node` keeps its identity, its end and its locks, so that handles keep their meaning. Every lock at or below it
        also counts above it, hence the copied count.
        """
        parent, cut = node.parent, num_pages * self._page_bytes
        assert parent is not None
        upper = RadixNode(parent, node.edge_key, node.data[:cut], node.page_ids[:num_pages].copy())
        upper.num_locks = node.num_locks
        parent.children[upper.edge_key] = upper
        node.parent = upper
        node.data = node.data[cut:]
        node.page_ids = node.page_ids[num_pages:].copy()
        node.edge_key = node.data[: self._page_bytes]
        upper.children[node.edge_key] = node
        return upper

    def _shorten(self, leaf: RadixNode, num_pages: int) -> None:
        """Cut an unlocked leaf down to its first pages; without any it leaves the tree."""
        parent = leaf.parent
        assert parent is not None
        leaf.data = leaf.data[: num_pages * self._page_bytes]
        leaf.page_ids = leaf.page_ids[:num_pages].copy()
        if num_pages == 0:
            del parent.children[leaf.edge_key]
            leaf = parent
        self._order.offer(leaf)

    def _touch(self, nodes: list[RadixNode]) -> None:
        self._now += 1
        for node in nodes:
            node.last_access = self._now


def check_accounting(allocator: PageAllocator, cache: RadixCache, held_pages: int) -> None:
    """Raise `AssertionError`, with the figures, unless free + cached + held pages are all but the dummy."""
    free, cached, pages = allocator.num_free, cache.cached_pages, allocator.num_pages - 1
    if free + cached + held_pages != pages:
        raise AssertionError(
            f"{free} free + {cached} cached ({cache.protected_pages} locked) + {held_pages} held = "
            f"{free + cached + held_pages} pages, but there are {pages}"
        )


def _pages_of(nodes: list[RadixNode]) -> npt.NDArray[np.int32]:
    return np.concatenate([node.page_ids for node in nodes]) if nodes else _NO_PAGES
