"""The radix cache: matches, splits, locks, duplicates, order of eviction."""

from __future__ import annotations

import numpy as np
import pytest

from core.mem_cache.page_allocator import PageAllocator
from core.mem_cache.radix_cache import InsertResult, RadixCache, check_accounting

PAGE_SIZE = 4


def tokens(text: str) -> np.ndarray:
    """A page of equal tokens for each letter; a digit is a single token."""
    return np.array([token for c in text for token in ([int(c)] if c.isdigit() else [ord(c)] * PAGE_SIZE)], np.int32)


class Books:
    """A cache and its allocator; `put` inserts a text with fresh pages, as a request does that computed all of it."""

    def __init__(self, num_pages: int = 64, enabled: bool = True) -> None:
        self.allocator = PageAllocator(num_pages)
        self.cache = RadixCache(PAGE_SIZE, self.allocator, enabled)

    def put(self, text: str, extra_key: str = "") -> InsertResult:
        ids = tokens(text)
        page_ids = self.allocator.alloc(len(ids) // PAGE_SIZE)
        assert page_ids is not None
        result = self.cache.insert(ids, page_ids, extra_key)
        self.allocator.free(result.returned_page_ids)
        self.check()
        return result

    def found(self, text: str, extra_key: str = "") -> int:
        return self.cache.peek(tokens(text), extra_key)

    def check(self) -> None:
        self.cache.check()
        check_accounting(self.allocator, self.cache, 0)


@pytest.fixture
def books() -> Books:
    return Books()


def test_empty_cache_matches_nothing(books: Books) -> None:
    for text in ("", "1", "ab"):
        match = books.cache.match(tokens(text), "")
        assert (match.num_tokens, match.page_ids.tolist()) == (0, [])
        books.cache.lock(match.handle)
        books.cache.unlock(match.handle)
    assert books.cache.protected_pages == 0


def test_match_gives_whole_pages_of_the_longest_prefix(books: Books) -> None:
    page_ids = books.put("abc123").page_ids.tolist()
    assert len(page_ids) == 3, "the tokens past the last whole page are not cached"
    for text, num_pages in [("abc", 3), ("abc123", 3), ("abcd", 3), ("ab", 2), ("abd", 2), ("ab123", 2), ("b", 0)]:
        assert books.found(text) == num_pages * PAGE_SIZE
        match = books.cache.match(tokens(text), "")
        assert (match.num_tokens, match.page_ids.tolist()) == (num_pages * PAGE_SIZE, page_ids[:num_pages])
        books.check()


def test_a_page_that_differs_in_its_last_token_does_not_match(books: Books) -> None:
    ids = tokens("ab")
    books.put("ab")
    ids[-1] += 1
    assert books.cache.match(ids, "").num_tokens == PAGE_SIZE


def test_peek_mutates_nothing(books: Books) -> None:
    books.put("ab")
    books.put("xy")
    assert books.found("a") == PAGE_SIZE
    books.cache.evict(1)
    assert books.found("ab") == PAGE_SIZE, "it was the least recently used, whatever was peeked at"
    assert books.found("xy") == 2 * PAGE_SIZE


def test_extra_keys_share_nothing(books: Books) -> None:
    pages = {key: books.put("ab", key).page_ids.tolist() for key in ("", "tenant", "tenant2", "\ud800", "a" * 4)}
    assert len({page for ids in pages.values() for page in ids}) == 10
    for key, page_ids in pages.items():
        assert books.cache.match(tokens("abc"), key).page_ids.tolist() == page_ids
    assert books.found("ab", "other") == 0


def test_an_extra_key_cannot_imitate_a_page(books: Books) -> None:
    first_page = tokens("a").tobytes().decode()
    books.put("ab", "")
    assert books.found("b", first_page) == 0
    books.put("b", first_page)
    assert books.found("ab", "") == 2 * PAGE_SIZE


def test_insert_keeps_a_copy_of_the_pages(books: Books) -> None:
    page_ids = books.allocator.alloc(2)
    assert page_ids is not None
    kept = page_ids.tolist()
    books.cache.insert(tokens("ab"), page_ids, "")
    page_ids[:] = 0
    assert books.cache.match(tokens("ab"), "").page_ids.tolist() == kept


def test_duplicates_stay_with_the_caller(books: Books) -> None:
    """A request that locks `a` and computes `bcd`, while another inserts `abc`."""
    (page_a,) = books.put("a").page_ids.tolist()
    match = books.cache.match(tokens("abcd"), "")
    books.cache.lock(match.handle)
    own = books.allocator.alloc(3)
    assert own is not None
    b, c = books.cache.insert(tokens("abc"), np.array([page_a, *alloc(books, 2)], np.int32), "").page_ids.tolist()[1:]

    result = books.cache.insert(tokens("abcd"), np.concatenate([match.page_ids, own]), "")
    assert result.page_ids.tolist() == [page_a, b, c, own[2]]
    assert result.num_already_cached == 3
    assert result.returned_page_ids.tolist() == own[:2].tolist()
    books.cache.lock(result.handle)
    books.cache.unlock(match.handle)
    assert books.cache.protected_pages == 4
    check_accounting(books.allocator, books.cache, held_pages=2)
    books.allocator.free(result.returned_page_ids)
    books.cache.unlock(result.handle)
    books.check()


def alloc(books: Books, num_pages: int) -> list[int]:
    page_ids = books.allocator.alloc(num_pages)
    assert page_ids is not None
    return page_ids.tolist()


def test_inserting_what_is_known_returns_everything(books: Books) -> None:
    first = books.put("abc")
    own = books.allocator.alloc(2)
    assert own is not None
    again = books.cache.insert(tokens("ab"), own, "")
    assert again.page_ids.tolist() == first.page_ids.tolist()[:2]
    assert again.num_already_cached == 2
    assert again.returned_page_ids.tolist() == own.tolist()


def test_a_locked_prefix_outlives_eviction_and_splits(books: Books) -> None:
    page_ids = books.put("abcd").page_ids.tolist()
    match = books.cache.match(tokens("abcd"), "")
    books.cache.lock(match.handle)
    books.put("abxy")  # splits the locked node
    books.cache.match(tokens("a"), "")  # and again
    books.check()
    assert books.cache.protected_pages == 4
    assert books.cache.evictable_pages == 2
    assert books.cache.flush() == 2
    assert books.cache.match(tokens("abcd"), "").page_ids.tolist() == page_ids
    books.cache.unlock(match.handle)
    books.check()
    assert books.cache.protected_pages == 0
    assert books.cache.flush() == 4
    assert books.cache.cached_pages == 0


def test_a_lock_in_the_middle_of_a_node_leaves_its_end_evictable(books: Books) -> None:
    books.put("abcd")
    match = books.cache.match(tokens("ab"), "")
    books.cache.lock(match.handle)
    assert (books.cache.protected_pages, books.cache.evictable_pages) == (2, 2)
    assert books.cache.evict(10) == 2
    assert books.found("abcd") == 2 * PAGE_SIZE
    books.cache.unlock(match.handle)
    books.check()


def test_locks_are_counted(books: Books) -> None:
    handle = books.put("ab").handle
    books.cache.lock(handle)
    books.cache.lock(handle)
    books.cache.unlock(handle)
    assert books.cache.flush() == 0
    books.cache.unlock(handle)
    with pytest.raises(AssertionError, match="unlocked more often"):
        books.cache.unlock(handle)


def test_locking_an_evicted_handle_is_caught(books: Books) -> None:
    handle = books.put("ab").handle
    books.cache.flush()
    with pytest.raises(AssertionError, match="void"):
        books.cache.lock(handle)


def test_eviction_is_least_recent_first_and_from_the_end(books: Books) -> None:
    for text in ("abc", "xy", "pq"):
        books.put(text)
    books.cache.match(tokens("abc"), "")  # now the order is xy, pq, abc
    steps = []
    while books.cache.evict(1):
        books.check()
        steps.append(tuple(books.found(text) // PAGE_SIZE for text in ("abc", "xy", "pq")))
    assert steps == [(3, 1, 2), (3, 0, 2), (3, 0, 1), (3, 0, 0), (2, 0, 0), (1, 0, 0), (0, 0, 0)]


def test_a_parent_goes_after_its_children(books: Books) -> None:
    books.put("ab")
    books.put("abcd")
    books.put("abxy")
    books.put("pq")
    assert books.cache.evict(4) == 4
    assert [books.found(text) // PAGE_SIZE for text in ("abcd", "abxy", "pq")] == [2, 2, 2]
    assert books.cache.evict(1) == 1, "the parent was used with its last child, before pq"
    assert [books.found(text) // PAGE_SIZE for text in ("ab", "pq")] == [1, 2]


def test_evict_frees_to_the_allocator(books: Books) -> None:
    books.put("abcdef")
    assert books.allocator.num_free == 57
    assert books.cache.evict(0) == 0
    assert books.cache.evict(4) == 4
    assert books.allocator.num_free == 61
    assert books.cache.evict(100) == 2
    assert books.cache.evict(1) == 0


def test_disabled_cache_keeps_nothing() -> None:
    books = Books(enabled=False)
    page_ids = books.allocator.alloc(2)
    assert page_ids is not None
    result = books.cache.insert(tokens("ab"), page_ids, "")
    assert result.returned_page_ids.tolist() == page_ids.tolist()
    assert result.page_ids.tolist() == []
    assert books.cache.match(tokens("ab"), "").num_tokens == 0
    assert books.cache.cached_pages == 0
    books.cache.lock(result.handle)
    books.cache.unlock(result.handle)


def test_accounting_names_its_figures(books: Books) -> None:
    books.put("ab")
    with pytest.raises(
        AssertionError, match=r"61 free \+ 2 cached \(0 locked\) \+ 1 held = 64 pages, but there are 63"
    ):
        check_accounting(books.allocator, books.cache, held_pages=1)


def test_check_finds_a_cached_page_that_is_free(books: Books) -> None:
    books.allocator.free(books.put("ab").page_ids[:1])
    with pytest.raises(AssertionError, match="a cached page is free"):
        books.cache.check()
