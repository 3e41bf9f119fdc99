"""The page allocator: what it hands out, and that misuse is caught."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.mem_cache.page_allocator import PageAllocator


def ids(*page_ids: int) -> np.ndarray:
    return np.array(page_ids, np.int32)


def test_hands_out_every_page_but_the_dummy_once() -> None:
    allocator = PageAllocator(9)
    page_ids = allocator.alloc(8)
    assert page_ids is not None
    assert page_ids.dtype == np.int32
    assert sorted(page_ids.tolist()) == list(range(1, 9))
    assert allocator.num_free == 0


def test_too_few_pages_change_nothing() -> None:
    allocator = PageAllocator(4)
    assert allocator.alloc(4) is None
    assert allocator.num_free == 3
    assert allocator.alloc(3) is not None
    assert allocator.alloc(1) is None


def test_alloc_of_nothing_and_free_of_nothing() -> None:
    allocator = PageAllocator(1)
    page_ids = allocator.alloc(0)
    assert page_ids is not None
    assert len(page_ids) == 0
    allocator.free(page_ids)
    assert allocator.num_free == 0


def test_result_belongs_to_the_caller() -> None:
    allocator = PageAllocator(5)
    first = allocator.alloc(2)
    assert first is not None
    kept = first.copy()
    allocator.free(first)
    first[:] = 0
    again = allocator.alloc(2)
    assert again is not None
    assert sorted(again.tolist()) == sorted(kept.tolist())


@pytest.mark.parametrize(
    ("page_ids", "message"),
    [
        (ids(2), "free already"),
        (ids(1, 2), "free already"),
        (ids(1, 1), "listed twice"),
        (ids(0), "not a page that is handed out"),
        (ids(-1), "not a page that is handed out"),
    ],
)
def test_misuse_is_caught(page_ids: np.ndarray, message: str) -> None:
    allocator = PageAllocator(4)
    assert allocator.alloc(1) == ids(1)
    with pytest.raises(AssertionError, match=message):
        allocator.free(page_ids)
    assert allocator.num_free == 2


def test_double_free_is_caught() -> None:
    allocator = PageAllocator(4)
    page_ids = allocator.alloc(2)
    assert page_ids is not None
    allocator.free(page_ids)
    with pytest.raises(AssertionError, match="free already"):
        allocator.free(page_ids[:1])


@given(st.lists(st.integers(0, 7), max_size=40), st.randoms(use_true_random=False))
def test_random_use_equals_a_set(sizes: list[int], random: object) -> None:
    allocator, held = PageAllocator(20), list[int]()
    for size in sizes:
        page_ids = allocator.alloc(size)
        if size > 19 - len(held):
            assert page_ids is None
            random.shuffle(held)  # type: ignore[attr-defined]
            given_back, held = held[:size], held[size:]
            allocator.free(np.array(given_back, np.int32))
        else:
            assert page_ids is not None
            assert not set(page_ids.tolist()) & set(held)
            held += page_ids.tolist()
        assert allocator.num_free == 19 - len(held)
        assert set(np.flatnonzero(~allocator.are_free(np.arange(20, dtype=np.int32))).tolist()) == set(held)
