"""What the tests of sampling share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

ChiSquare = Callable[[Sequence[float], Sequence[float]], None]

_Z = 3.72  # a right sampler fails once in ten thousand choices of the fixed seeds


@pytest.fixture(scope="session")
def assert_frequencies() -> ChiSquare:
    """Pearson's chi-square test of observed against expected counts, each expected one at least 5."""

    def check(observed: Sequence[float], expected: Sequence[float]) -> None:
        assert math.isclose(sum(observed), sum(expected), rel_tol=1e-6)
        assert min(expected) >= 5
        statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
        freedom = len(expected) - 1
        # Wilson and Hilferty 1931: the cube root of chi-square / freedom is nearly normal.
        limit = freedom * (1 - 2 / (9 * freedom) + _Z * math.sqrt(2 / (9 * freedom))) ** 3
        assert statistic < limit, f"chi-square {statistic:.1f}, limit {limit:.1f} at {freedom} degrees of freedom"

    return check
