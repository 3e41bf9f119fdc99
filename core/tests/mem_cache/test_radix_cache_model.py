"""Allocator, page table and radix cache against brute force: a dictionary from prefixes to pages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from core.mem_cache.page_allocator import PageAllocator
from core.mem_cache.page_table import PageTableCpu
from core.mem_cache.radix_cache import NodeHandle, RadixCache, check_accounting

NUM_PAGES = 24
MAX_ROWS = 6
MAX_PAGES = 10

# Pages that differ in their first token, in their last, or (with one token a page) only by name.
LETTERS = st.lists(st.sampled_from("abc"), max_size=6).map("".join)
EXTRA_KEYS = st.sampled_from(["", "x"])

Prefix = tuple[str, str]
"""Extra key, and a letter for each page."""


@dataclass
class CachedPage:
    page_id: int
    used: int


@dataclass
class Request:
    """A running request. `num_locked` counts the pages of its prefix that its handle stands for."""

    row: int
    extra_key: str
    letters: str
    handle: NodeHandle
    num_locked: int
    own: set[int]


def prefixes(extra_key: str, letters: str) -> list[Prefix]:
    return [(extra_key, letters[:end]) for end in range(1, len(letters) + 1)]


class KVBooks(RuleBasedStateMachine):
    page_size: int

    def __init__(self) -> None:
        super().__init__()
        self.allocator = PageAllocator(NUM_PAGES)
        self.table = PageTableCpu(MAX_ROWS, MAX_PAGES)
        self.cache = RadixCache(self.page_size, self.allocator)
        self.requests: list[Request] = []
        self.model: dict[Prefix, CachedPage] = {}
        self.now = 0
        self.device = np.zeros((MAX_ROWS, MAX_PAGES), np.int32)

    # -- the model -----------------------------------------------------------------------------------------------

    def tokens(self, letters: str, rest: int = 0) -> np.ndarray:
        pages = np.zeros((len(letters), self.page_size), np.int32)
        for page, letter in zip(pages, letters, strict=True):
            page[{"a": -1, "b": -1, "c": 0}[letter]] = ord(letter)
        tail = np.full(min(rest, self.page_size - 1), 7, np.int32)
        return np.concatenate([pages.ravel(), tail])

    def known(self, extra_key: str, letters: str) -> list[CachedPage]:
        """The model's answer to `match`, without its mark of use."""
        pages = []
        for prefix in prefixes(extra_key, letters):
            if prefix not in self.model:
                break
            pages.append(self.model[prefix])
        return pages

    def use(self, pages: list[CachedPage]) -> None:
        self.now += 1
        for page in pages:
            page.used = self.now

    def locked(self) -> set[Prefix]:
        return {p for r in self.requests for p in prefixes(r.extra_key, r.letters[: r.num_locked])}

    def evict_from_model(self, num_pages: int) -> list[int]:
        """Page by page: the least recently used of those that are neither locked nor continued."""
        locked, gone = self.locked(), list[int]()
        for _ in range(num_pages):
            parents = {(key, letters[:-1]) for key, letters in self.model}
            leaves = [p for p in self.model if p not in locked and p not in parents]
            if not leaves:
                break
            gone.append(self.model.pop(min(leaves, key=lambda p: self.model[p].used)).page_id)
        return gone

    def insert(self, request: Request, num_pages: int, rest: int) -> NodeHandle:
        """Insert a request's first pages in both; what the tree took is no longer the request's own."""
        letters, row_pages = request.letters[:num_pages], self.table.pages(request.row)
        known = self.known(request.extra_key, letters)
        result = self.cache.insert(self.tokens(letters, rest), row_pages, request.extra_key)
        expected = [page.page_id for page in known] + row_pages[len(known) : num_pages].tolist()
        assert result.page_ids.tolist() == expected
        assert result.num_already_cached == len(known)
        assert result.returned_page_ids.tolist() == [
            page for page, kept in zip(row_pages.tolist(), expected, strict=False) if page != kept
        ]
        for prefix, page_id in zip(prefixes(request.extra_key, letters), expected, strict=True):
            self.model.setdefault(prefix, CachedPage(page_id, 0))
        self.use(self.known(request.extra_key, letters))
        request.own -= set(expected)
        return result.handle

    # -- what requests do ----------------------------------------------------------------------------------------

    @rule(letters=LETTERS, extra_key=EXTRA_KEYS, rest=st.integers(0, 15))
    def start(self, letters: str, extra_key: str, rest: int) -> None:
        row = self.table.alloc_row()
        assert (row is None) == (len(self.requests) == MAX_ROWS - 1)
        if row is None:
            return
        match = self.cache.match(self.tokens(letters, rest), extra_key)
        known = self.known(extra_key, letters)
        self.use(known)
        assert match.page_ids.tolist() == [page.page_id for page in known]
        assert match.num_tokens == len(known) * self.page_size
        self.cache.lock(match.handle)
        self.table.append(row, match.page_ids)
        request = Request(row, extra_key, letters[: len(known)], match.handle, len(known), set())
        self.requests.append(request)
        self.extend(request, letters[len(known) :])

    def extend(self, request: Request, letters: str) -> None:
        """Compute more pages, evicting if need be; not at all if there are too few."""
        shortage = len(letters) - self.allocator.num_free
        if shortage > 0:
            self.evict(shortage)
        page_ids = self.allocator.alloc(len(letters))
        if page_ids is None:
            return
        self.table.append(request.row, page_ids)
        request.letters += letters
        request.own |= set(page_ids.tolist())

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.requests))
        num_pages = data.draw(st.integers(request.num_locked, len(request.letters)))
        handle = self.insert(request, num_pages, rest=0)
        self.cache.lock(handle)
        self.cache.unlock(request.handle)
        request.handle, request.num_locked = handle, num_pages

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), letter=st.sampled_from("abc"))
    def decode(self, data: st.DataObject, letter: str) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.requests), unique_by=id))
        growing = [request for request in chosen if len(request.letters) < MAX_PAGES]
        page_ids = self.allocator.alloc(len(growing))
        if page_ids is None:
            return
        self.table.append_many(np.array([request.row for request in growing], np.int32), page_ids)
        for request, page_id in zip(growing, page_ids.tolist(), strict=True):
            request.letters += letter
            request.own.add(page_id)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), rest=st.integers(0, 15))
    def finish(self, data: st.DataObject, rest: int) -> None:
        request = self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))
        self.insert(request, data.draw(st.integers(0, len(request.letters))), rest)
        self.allocator.free(np.array(sorted(request.own), np.int32))
        self.cache.unlock(request.handle)
        self.table.free_row(request.row)

    # -- what happens besides ------------------------------------------------------------------------------------

    @rule(letters=LETTERS, extra_key=EXTRA_KEYS)
    def look_up(self, letters: str, extra_key: str) -> None:
        known = self.known(extra_key, letters)
        assert self.cache.peek(self.tokens(letters), extra_key) == len(known) * self.page_size
        self.use(known)
        assert self.cache.match(self.tokens(letters), extra_key).page_ids.tolist() == [page.page_id for page in known]

    @rule(num_pages=st.integers(0, 8))
    def evict(self, num_pages: int) -> None:
        gone = self.evict_from_model(num_pages)
        assert self.cache.evict(num_pages) == len(gone)
        assert self.allocator.are_free(np.array(gone, np.int32)).all()

    @rule()
    def flush(self) -> None:
        assert self.cache.flush() == len(self.evict_from_model(NUM_PAGES))

    @rule()
    def take_updates(self) -> None:
        update = self.table.take_updates()
        self.device[update.rows, update.columns] = update.page_ids
        for request in self.requests:
            assert self.device[request.row, : len(request.letters)].tolist() == self.table.pages(request.row).tolist()

    # -- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def books_agree(self) -> None:
        self.cache.check()
        held = [page for request in self.requests for page in request.own]
        cached = [page.page_id for page in self.model.values()]
        check_accounting(self.allocator, self.cache, len(held))
        free = np.flatnonzero(self.allocator.are_free(np.arange(NUM_PAGES, dtype=np.int32))).tolist()
        assert sorted([*free, *held, *cached]) == list(range(NUM_PAGES)), "a page is in two states, or in none"
        num_locked = len(self.locked())
        assert self.cache.protected_pages == num_locked
        assert self.cache.evictable_pages == len(cached) - num_locked
        for request in self.requests:
            assert len(self.table.pages(request.row)) == len(request.letters)
            assert request.own <= set(self.table.pages(request.row).tolist())

    def teardown(self) -> None:
        for request in self.requests:
            self.allocator.free(np.array(sorted(request.own), np.int32))
            self.cache.unlock(request.handle)
        self.cache.flush()
        assert self.allocator.num_free == NUM_PAGES - 1, "pages leaked"


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_books_agree_with_the_model(page_size: int) -> None:
    machine = type(f"KVBooks{page_size}", (KVBooks,), {"page_size": page_size})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
