"""`EvictionOrder`: the unlocked leaves of the radix tree by least recent use."""

from __future__ import annotations

import heapq
from itertools import count
from typing import final

from core.mem_cache.radix_node import RadixNode


@final
class EvictionOrder:
    """A heap with one entry for each unlocked leaf, made so that using or locking a node costs nothing here.

    An entry's time may be older than its node's, never younger: it is brought up to date when it reaches the top.
    Entries of nodes that are no longer unlocked leaves are dropped there. So there is at most one entry a node.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, RadixNode]] = []
        self._serials = count()  # tells entries of the same time apart

    def offer(self, node: RadixNode) -> None:
        """Enter a node if it is an unlocked leaf and not entered. To be called whenever one may have become such."""
        if node.is_offered or not node.is_evictable:
            return
        node.is_offered = True
        heapq.heappush(self._heap, (node.last_access, next(self._serials), node))

    def pop(self) -> RadixNode | None:
        """Take out the unlocked leaf least recently used; None if there is none. Logarithmic, amortised."""
        while self._heap:
            time, _, node = heapq.heappop(self._heap)
            node.is_offered = False
            if not node.is_evictable:
                continue
            if time == node.last_access:
                return node
            self.offer(node)
        return None

    def check(self, nodes: list[RadixNode]) -> None:
        """Assert the invariants, given all nodes of the tree but the root."""
        entered = [node for _, _, node in self._heap]
        assert len({id(node) for node in entered}) == len(entered), "a node is entered twice"
        assert {id(node) for node in entered} == {id(node) for node in nodes if node.is_offered}, "a stray entry"
        assert all(node.is_offered for node in nodes if node.is_evictable), "an unlocked leaf is not entered"
        assert all(time <= node.last_access for time, _, node in self._heap), "an entry is younger than its node"
