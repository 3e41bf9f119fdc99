"""The draw's definition: the hash against plain Python, fixed values, and the statistics of the noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.sampling.noise import gumbel_noise

ChiSquare = Callable[[Sequence[float], Sequence[float]], None]

WORD = 2**32 - 1
BINS = 64


def mix(x: int) -> int:
    x ^= x >> 16
    x = x * 0x7FEB352D & WORD
    x ^= x >> 15
    x = x * 0x846CA68B & WORD
    return x ^ x >> 16


def unmix(x: int) -> int:
    x ^= x >> 16
    x = x * pow(0x846CA68B, -1, 2**32) & WORD
    x ^= x >> 15 ^ x >> 30
    x = x * pow(0x7FEB352D, -1, 2**32) & WORD
    return x ^ x >> 16


def row_keys(seed: int, position: int) -> tuple[int, int]:
    a = mix(seed & WORD ^ 0x9E3779B9)
    b = mix(seed >> 32 & WORD ^ a)
    a = mix(a + b & WORD ^ position & WORD)
    return a, mix(b ^ a)


def bits(seed: int, position: int, token: int) -> int:
    a, b = row_keys(seed, position)
    return mix((mix(token & WORD) ^ a) + b & WORD) >> 9


def noise_of_bits(h: int) -> float:
    return -math.log(-math.log((h + 0.5) * 2.0**-23))


def noise(seeds: Sequence[int], positions: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
    return gumbel_noise(torch.tensor(seeds), torch.tensor(positions), torch.tensor(tokens))


def uniform(values: torch.Tensor) -> torch.Tensor:
    """Back from Gumbel to (0, 1)."""
    return torch.exp(-torch.exp(-values.double())).flatten()


int64s = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=200, deadline=None)
@given(int64s, st.integers(0, 2**40), st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8))
def test_equals_plain_python(seed: int, position: int, tokens: list[int]) -> None:
    expected = [noise_of_bits(bits(seed, position, token)) for token in tokens]
    (drawn,) = noise([seed], [position], tokens)
    assert drawn.dtype == torch.float32
    assert drawn.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_the_definition_does_not_drift() -> None:
    cases = {
        (0, 0, 0): 5674665,
        (0, 0, 1): 6508075,
        (0, 1, 0): 3642321,
        (1, 0, 0): 7480154,
        (2**32, 0, 0): 3076834,
        (-1, 7, 49151): 2459368,
        (-(2**63), 131071, 151935): 6297869,
        (2**63 - 1, 1, 128255): 5542150,
        (42, 1000, 2): 6127629,
    }
    for (seed, position, token), h in cases.items():
        assert bits(seed, position, token) == h
        assert noise([seed], [position], [token]).item() == pytest.approx(noise_of_bits(h), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("h", [0, 1, 2**22, 2**23 - 2, 2**23 - 1])
def test_the_ends_of_the_range_are_finite_and_exact(h: int) -> None:
    seed, position = 12345, 678
    a, b = row_keys(seed, position)
    token = unmix(unmix(h << 9) - b & WORD ^ a)
    assert bits(seed, position, token) == h
    assert noise([seed], [position], [token]).item() == pytest.approx(noise_of_bits(h), rel=1e-6)


@pytest.mark.parametrize("axis", ["seed", "seed_high_word", "position", "token"])
def test_uniform_along_each_axis(axis: str, assert_frequencies: ChiSquare) -> None:
    count = 64_000
    steps, fixed = list(range(count)), [77]
    if axis == "token":
        values = noise(fixed, fixed, steps)
    elif axis == "position":
        values = noise(fixed * count, steps, fixed)
    else:
        values = noise([step << 32 for step in steps] if axis == "seed_high_word" else steps, fixed * count, fixed)
    counts = torch.histc(uniform(values), BINS, 0, 1).tolist()
    assert_frequencies(counts, [count / BINS] * BINS)


@pytest.mark.parametrize(
    "neighbour", [(1, 0, 0), (1 << 32, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, -1, 0), (0, 1, -1), (1, 0, 1)]
)
def test_neighbours_are_independent(neighbour: tuple[int, int, int], assert_frequencies: ChiSquare) -> None:
    """The pair (noise here, noise there) fills an 8 x 8 grid evenly."""
    seeds, positions, tokens = (axis.flatten() for axis in torch.meshgrid(*[torch.arange(1, 33)] * 3, indexing="ij"))
    here = gumbel_noise(seeds, positions, tokens.unsqueeze(1))
    there = gumbel_noise(seeds + neighbour[0], positions + neighbour[1], (tokens + neighbour[2]).unsqueeze(1))
    cells = (uniform(here) * 8).long() * 8 + (uniform(there) * 8).long()
    assert_frequencies(torch.bincount(cells, minlength=64).tolist(), [len(seeds) / 64] * 64)


def test_seeds_that_differ_in_one_bit_share_nothing() -> None:
    tokens = torch.arange(1000)
    streams = [0, *(1 << bit for bit in range(63)), -(2**63)]
    values = gumbel_noise(torch.tensor(streams), torch.full((65,), 5), tokens)
    correlation = torch.corrcoef(values)
    correlation.fill_diagonal_(0)
    assert correlation.abs().max() < 0.15  # 4.7 standard deviations; 2080 pairs


def test_a_token_has_the_same_noise_in_any_batch_and_any_order() -> None:
    seeds, positions = torch.arange(-20, 20) * 10**12, torch.arange(40) * 3
    whole = gumbel_noise(seeds, positions, torch.arange(9000))
    order = torch.randperm(9000, generator=torch.Generator().manual_seed(0))
    for row in (0, 7, 39):
        alone = gumbel_noise(seeds[row : row + 1], positions[row : row + 1], order[:4001])
        assert torch.equal(alone[0], whole[row, order[:4001]])
    own_tokens = torch.stack([order[row : row + 50] for row in range(40)])
    assert torch.equal(gumbel_noise(seeds, positions, own_tokens), whole.gather(1, own_tokens))


def test_arguments_are_not_mutated() -> None:
    arguments = (torch.tensor([-5, 2**40]), torch.tensor([3, 4]), torch.tensor([7, 8, 9]))
    copies = tuple(argument.clone() for argument in arguments)
    gumbel_noise(*arguments)
    assert all(torch.equal(argument, copy) for argument, copy in zip(arguments, copies, strict=True))
