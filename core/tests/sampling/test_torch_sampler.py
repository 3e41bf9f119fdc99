"""The torch sampler against float64: which tokens are kept, which is drawn, how often, and in whatever batch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.sampling import kept_tokens
from core.sampling.batch import SamplingBatch
from core.sampling.noise import gumbel_noise
from core.sampling.sampler import SamplerContext
from core.sampling.torch_sampler import TorchSampler
from core.specs import NoOptions

ChiSquare = Callable[[Sequence[float], Sequence[float]], None]

NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Row:
    """Parameters of one row; `top_k` 0 keeps all."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    position: int = 0


def batch_of(rows: Sequence[Row], vocab_size: int, *, bounded: bool = True) -> SamplingBatch:
    """The batch of some rows, with or without its bound of top-k."""
    top_k = [row.top_k or vocab_size for row in rows]
    random = [k for row, k in zip(rows, top_k, strict=True) if row.temperature > 0]
    ones, zeros = torch.ones(len(rows)), torch.zeros(len(rows))
    return SamplingBatch(
        temperature=torch.tensor([row.temperature for row in rows]),
        top_k=torch.tensor(top_k, dtype=torch.int32),
        top_p=torch.tensor([float(row.top_p) for row in rows]),
        min_p=torch.tensor([float(row.min_p) for row in rows]),
        seeds=torch.tensor([row.seed for row in rows]),
        positions=torch.tensor([row.position for row in rows]),
        repetition_penalty=ones,
        frequency_penalty=zeros,
        presence_penalty=zeros,
        all_greedy=not random,
        any_greedy=len(random) < len(rows),
        any_top_k=any(row.top_k for row in rows),
        any_top_p=any(row.top_p < 1 for row in rows),
        any_min_p=any(row.min_p > 0 for row in rows),
        max_top_k=max(random) if random and bounded else None,
    )


def sample(logits: Sequence[Sequence[float]] | torch.Tensor, rows: Sequence[Row], *, bounded: bool = True) -> list[int]:
    tensor = torch.as_tensor(logits, dtype=torch.float32).clone()
    sampler = TorchSampler(SamplerContext(tensor.shape[1], 64, torch.device("cpu"), NoOptions()))
    drawn = sampler.sample(tensor, batch_of(rows, tensor.shape[1], bounded=bounded))
    assert drawn.dtype == torch.int64
    assert drawn.shape == (len(rows),)
    return drawn.tolist()


def kept_by_hand(logits: Sequence[float], row: Row) -> dict[int, float] | None:
    """Kept token -> probability before the last renormalisation, in float64 and without torch.

    None if a cut lies so near to a token that rounding decides.
    """
    largest = max(logits)
    weight = [math.exp((logit - largest) / row.temperature) for logit in logits]
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    order = order[: row.top_k or None]
    total = sum(weight[token] for token in order)
    if row.top_p < 1:
        reached, kept = 0.0, []
        for token in order:
            kept.append(token)
            reached += weight[token] / total
            if abs(reached - row.top_p) < 1e-5:
                return None
            if reached >= row.top_p:
                break
        order = kept
    if any(abs(weight[token] - row.min_p) < 1e-5 and weight[token] != 1 for token in order):
        return None
    return {token: weight[token] / total for token in order if weight[token] >= row.min_p}


# Quarters, so that ties are common, and any float.
logit = st.integers(-20, 20).map(lambda n: n / 4) | st.floats(-30, 30, width=32)
row_params = st.builds(
    Row,
    temperature=st.sampled_from([0.0, 0.05, 0.7, 1.0, 1.0, 3.0]),
    top_k=st.integers(0, 9),
    top_p=st.sampled_from([1.0, 1.0, 0.0]) | st.floats(0, 1, width=32),
    min_p=st.sampled_from([0.0, 0.0, 1.0]) | st.floats(0, 1, width=32),
    seed=st.integers(-(2**63), 2**63 - 1),
    position=st.integers(0, 10_000),
)


def drawn_by_hand(logits: Sequence[float], row: Row) -> int | None:
    """The token that a row draws, or None if rounding decides."""
    if row.temperature == 0:
        return logits.index(max(logits))
    kept = kept_by_hand(logits, row)
    if kept is None:
        return None
    noise = gumbel_noise(torch.tensor([row.seed]), torch.tensor([row.position]), torch.arange(len(logits)))
    scores = {token: math.log(p) + noise[0, token].item() for token, p in kept.items() if p > 0}
    best, *others = sorted(scores, key=lambda token: -scores[token])
    return None if others and scores[best] - scores[others[0]] < 1e-4 else best


def check_draws(logits: list[list[float]], rows: list[Row], candidates: tuple[int, ...], *, bounded: bool) -> int:
    """Compare one batch with float64; how many of its rows could be compared. Few candidates exercise every step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_tokens, "_NUM_CANDIDATES_CPU", candidates)
        drawn = sample(logits, rows, bounded=bounded)
    expected = [drawn_by_hand(values, row) for values, row in zip(logits, rows, strict=True)]
    assert [token for token, wanted in zip(drawn, expected, strict=True) if wanted is not None] == [
        wanted for wanted in expected if wanted is not None
    ]
    return sum(wanted is not None for wanted in expected)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(1, 9), st.booleans(), st.sampled_from([(), (1,), (2, 4)]))
def test_odd_rows_draw_what_float64_says(
    data: st.DataObject, vocab_size: int, bounded: bool, candidates: tuple[int, ...]
) -> None:
    rows = data.draw(st.lists(row_params, min_size=1, max_size=5))
    rows = [replace(row, top_k=row.top_k if row.top_k < vocab_size else 0) for row in rows]
    logits = [data.draw(st.lists(logit, min_size=vocab_size, max_size=vocab_size)) for _ in rows]
    check_draws(logits, rows, candidates, bounded=bounded)


@pytest.mark.parametrize("candidates", [(), (1,), (2, 5), (3, 8)])
def test_ordinary_rows_draw_what_float64_says(candidates: tuple[int, ...]) -> None:
    """Batches that mix every combination of parameters."""
    random = Random(4)
    compared = 0
    for _ in range(150):
        vocab_size, bs = random.randint(2, 24), random.randint(1, 8)
        rows = [
            Row(
                temperature=random.choice([0.0, 0.4, 1.0, 1.0, 2.0]),
                top_k=random.choice([0, 0, random.randrange(vocab_size)]),
                top_p=random.choice([1.0, random.random(), random.uniform(0.8, 1.0)]),
                min_p=random.choice([0.0, 0.0, random.random() * 0.3]),
                seed=random.getrandbits(63),
                position=random.randrange(10_000),
            )
            for _ in range(bs)
        ]
        spread = random.choice([0.2, 1.0, 3.0])
        logits = [[round(random.gauss(0, spread), random.choice([0, 1, 9])) for _ in range(vocab_size)] for _ in rows]
        compared += check_draws(logits, rows, candidates, bounded=random.random() < 0.5)
    assert compared > 600


@pytest.mark.parametrize(
    "row",
    [
        Row(),
        Row(temperature=0.6),
        Row(temperature=2.5),
        Row(top_k=3),
        Row(top_p=0.8),
        Row(min_p=0.3),
        Row(temperature=1.7, top_k=5, top_p=0.9, min_p=0.1),
    ],
    ids=str,
)
@pytest.mark.parametrize("over", ["positions", "seeds"])
def test_draws_are_as_frequent_as_they_should_be(row: Row, over: str, assert_frequencies: ChiSquare) -> None:
    count = 20_000
    values = [1.0, -0.5, 2.0, 0.25, 1.5, -1.0, 0.0]
    kept = kept_by_hand(values, row)
    assert kept is not None
    rows = [replace(row, **{"position" if over == "positions" else "seed": i}) for i in range(count)]
    drawn = Counter(sample([values] * count, rows))
    assert set(drawn) <= set(kept)
    total = sum(kept.values())
    assert_frequencies([drawn[token] for token in kept], [count * p / total for p in kept.values()])


def test_top_p_counts_within_top_k() -> None:
    """Top-k first: of 0.4, 0.3, 0.2, 0.1 it leaves 4/7 and 3/7, so that 0.5 keeps one; top-p first would keep two."""
    values = [math.log(p) for p in (0.1, 0.4, 0.2, 0.3)]
    rows = [Row(top_k=2, top_p=0.5, seed=seed) for seed in range(50)]
    assert set(sample([values] * 50, rows)) == {1}
    assert set(sample([values] * 50, [replace(row, top_k=0) for row in rows])) == {1, 3}


def test_ties_are_cut_after_the_lower_id() -> None:
    rows = [Row(top_k=2, seed=seed) for seed in range(60)]
    assert set(sample([[0.0, 1.0, 1.0, 1.0, -1.0]] * 60, rows)) == {1, 2}
    rows = [Row(top_p=0.5, seed=seed) for seed in range(60)]
    assert set(sample([[3.0, 3.0, 3.0, 3.0]] * 60, rows)) == {0, 1}
    assert set(sample([[-0.0, 0.0, -0.0, 0.0]] * 60, rows)) == {0, 1}


def test_logits_that_differ_in_their_last_bit_are_no_tie() -> None:
    """Also where their distances to the largest are equal after rounding."""
    rows = [Row(top_k=3, temperature=20.0, seed=seed) for seed in range(200)]
    assert set(sample([[-1e-16, 0.0, 0.25, 1e-16]] * 200, rows)) == {1, 2, 3}


@pytest.mark.parametrize("others", [[], [Row(seed=1)], [Row(top_k=2, top_p=0.5)]])
def test_greedy_takes_the_first_of_the_largest(others: list[Row]) -> None:
    logits = [[1.0, 5.0, 5.0, -2.0]] * (1 + len(others))
    for seed in range(20):
        assert sample(logits, [Row(temperature=0, seed=seed), *others])[0] == 1


@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 2}, {"min_p": 0.1}])
@pytest.mark.parametrize("temperature", [1e-9, 1e-30, 1e-38, 1e-45])
def test_a_tiny_temperature_is_greedy(temperature: float, filters: dict[str, float]) -> None:
    logits = [[-1e30, 2.0, 2.0001, -INF], [3e38, -3e38, 0.0, 1.0]]
    rows = [Row(temperature=temperature, seed=seed, **filters) for seed in (3, 4)]  # type: ignore[arg-type]
    assert sample(logits, rows) == [2, 0]


def test_a_huge_temperature_is_uniform(assert_frequencies: ChiSquare) -> None:
    rows = [Row(temperature=3e38, seed=seed, top_p=0.999) for seed in range(4000)]
    drawn = Counter(sample([[-50.0, 0.0, 50.0, 1000.0]] * 4000, rows))
    assert_frequencies([drawn[token] for token in range(4)], [1000] * 4)


@pytest.mark.parametrize("row", [Row(temperature=0), Row(), Row(top_k=3), Row(top_p=0.9), Row(min_p=0.01)], ids=str)
def test_broken_logits_stay_in_their_row(row: Row) -> None:
    good = [0.0, 1.0, 2.0, 0.5]
    logits = [[NAN, 1.0, NAN, -INF], [NAN] * 4, good, [0.0, INF, 1.0, -INF], [-INF] * 4, [-INF, -INF, 0.0, -INF]]
    (alone,) = sample([good], [row])
    assert sample(logits, [row] * 6) == [1, 0, alone, 1, 0, 2]


def test_infinite_logits_share_the_draw() -> None:
    rows = [Row(seed=seed, top_p=top_p) for seed in range(40) for top_p in (1.0, 0.9)]
    assert set(sample([[0.0, INF, 5.0, INF]] * 80, rows)) == {1, 3}


def test_top_p_just_below_one_stays_within_top_k() -> None:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(500, 8, generator=generator)
    rows = [Row(temperature=50.0, top_k=3, top_p=1 - 2**-24, seed=seed) for seed in range(500)]
    best = logits.topk(3).indices.tolist()
    assert all(token in kept for token, kept in zip(sample(logits, rows), best, strict=True))


def test_a_token_without_probability_is_never_drawn() -> None:
    rows = [
        Row(temperature=100.0, top_k=k, top_p=p, seed=seed) for k in (0, 3) for p in (1.0, 0.99) for seed in range(50)
    ]
    assert set(sample([[0.0, -INF, 1.0, -INF]] * len(rows), rows)) == {0, 2}


def test_the_same_row_draws_the_same_in_any_batch() -> None:
    generator = torch.Generator().manual_seed(11)
    flat = torch.randn(12, 6000, generator=generator) * 0.5  # top-p needs thousands of tokens
    peaked = torch.randn(12, 6000, generator=generator) * 5
    logits = torch.cat([flat, peaked])
    kinds = [
        Row(),
        Row(top_p=0.95),
        Row(top_k=40),
        Row(top_k=5000, top_p=0.9),
        Row(temperature=0),
        Row(min_p=0.02),
    ]
    rows = [replace(kinds[i % 6], seed=i * 7919, position=i) for i in range(24)]
    together = sample(logits, rows)
    for bounded in (True, False):
        assert [sample(logits[i : i + 1], rows[i : i + 1], bounded=bounded)[0] for i in range(24)] == together
    order = torch.randperm(24, generator=generator).tolist()
    assert sample(logits[order], [rows[i] for i in order]) == [together[i] for i in order]
    assert len(set(together)) > 12


def test_sampling_mutates_no_parameter() -> None:
    rows = [Row(top_k=2, top_p=0.9, min_p=0.1, temperature=0.5), Row(temperature=0)]
    batch, untouched = batch_of(rows, 6), batch_of(rows, 6)
    TorchSampler(SamplerContext(6, 4, torch.device("cpu"), NoOptions())).sample(torch.randn(2, 6), batch)
    for name in ("temperature", "top_k", "top_p", "min_p", "seeds", "positions"):
        assert torch.equal(getattr(batch, name), getattr(untouched, name))
