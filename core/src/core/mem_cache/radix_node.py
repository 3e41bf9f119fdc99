"""`RadixNode`: one node of the radix tree. `RadixCache` alone changes it."""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt


@final
class RadixNode:
    """A run of pages, the edge from the parent included. The root has no pages and no parent.

    Attributes:
        parent: None in the root.
        children: by their `edge_key`.
        edge_key: key of this node in its parent's `children`.
        data: the run's token ids, int32 in native byte order.
        page_ids: `[num_pages]` the run's pages; never empty but in the root, and in a node that left the tree.
        num_locks: locks at this node or below it.
        last_access: time of the last use, at least that of every child.
        is_offered: whether it has an entry in the order of eviction.
    """

    __slots__ = ("children", "data", "edge_key", "is_offered", "last_access", "num_locks", "page_ids", "parent")

    def __init__(self, parent: RadixNode | None, edge_key: bytes, data: bytes, page_ids: npt.NDArray[np.int32]) -> None:
        self.parent = parent
        self.children: dict[bytes, RadixNode] = {}
        self.edge_key = edge_key
        self.data = data
        self.page_ids = page_ids
        self.num_locks = 0
        self.last_access = 0
        self.is_offered = False

    @property
    def num_pages(self) -> int:
        return len(self.page_ids)

    @property
    def is_evictable(self) -> bool:
        """Whether it is an unlocked leaf, and not the root."""
        return not self.children and self.num_locks == 0 and self.parent is not None

    def descendants(self) -> list[RadixNode]:
        """Every node below this one, parents before their children."""
        nodes, todo = list[RadixNode](), [self]
        while todo:
            children = todo.pop().children.values()
            nodes.extend(children)
            todo.extend(children)
        return nodes

    def check(self, page_bytes: int) -> None:
        """Assert what must hold for a node of the tree that is not the root."""
        assert self.parent is not None
        assert self.parent.children.get(self.edge_key) is self, "not where its parent looks for it"
        assert self.num_pages > 0, "an empty node in the tree"
        assert len(self.data) == self.num_pages * page_bytes, "tokens and pages differ in number"
        first_page = self.data[:page_bytes]
        if self.parent.parent is None:
            assert self.edge_key.endswith(first_page), "the edge key is of other tokens"
        else:
            assert self.edge_key == first_page, "the edge key is of other tokens"
        assert self.num_locks >= sum(child.num_locks for child in self.children.values()), "a lock stops on its way up"
        assert all(child.last_access <= self.last_access for child in self.children.values()), "used before its child"
