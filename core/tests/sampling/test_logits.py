"""`adjust_logits` against the same written out for one token."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.sampling.batch import SamplingBatch
from core.sampling.logits import adjust_logits

VOCAB = 5

floats = st.floats(-8, 8, width=32)
counts = st.integers(0, 3)


@st.composite
def rows(draw: st.DrawFn) -> dict[str, list[float]]:
    """One row's logits and all that changes them."""

    def many(elements: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(elements, min_size=VOCAB, max_size=VOCAB))

    return {
        "logits": many(floats | st.just(-math.inf)),
        "prompt_mask": many(st.booleans()),
        "output_counts": many(counts),
        "allowed": many(st.booleans()),
        "bias": many(floats),
        "banned": many(st.booleans()),
        "penalties": [
            draw(st.sampled_from([1.0, 0.5, 1.25, 3.0])),
            draw(st.sampled_from([0.0, -1.0, 0.75])),
            draw(st.sampled_from([0.0, 1.5, -0.5])),
        ],
    }


def by_hand(row: dict[str, list[float]]) -> list[float]:
    repetition, frequency, presence = row["penalties"]
    result = []
    for token, logit in enumerate(row["logits"]):
        count = row["output_counts"][token]
        if row["prompt_mask"][token] or count:
            logit = logit / repetition if logit > 0 else logit * repetition
        logit -= frequency * count
        logit -= presence if count else 0
        if row["banned"][token] or not row["allowed"][token]:
            logit = -math.inf
        result.append(logit + row["bias"][token])
    return result


@settings(max_examples=150, deadline=None)
@given(st.lists(rows(), min_size=1, max_size=4))
def test_equals_the_definition(given_rows: list[dict[str, list[float]]]) -> None:
    def column(name: str, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([row[name] for row in given_rows], dtype=dtype)

    penalties = column("penalties", torch.float32)
    batch = neutral(len(given_rows))
    batch.repetition_penalty, batch.frequency_penalty, batch.presence_penalty = penalties.unbind(1)
    batch.prompt_mask = column("prompt_mask", torch.bool)
    batch.output_counts = column("output_counts", torch.int32)
    batch.vocab_mask = column("allowed", torch.bool)
    batch.logit_bias = column("bias", torch.float32)
    batch.banned = tuple(column("banned", torch.bool).nonzero().unbind(1))  # type: ignore[assignment]
    batch.any_penalty = True
    logits = column("logits", torch.float32)
    adjusted = adjust_logits(logits, batch)
    assert adjusted is logits
    expected = torch.tensor([by_hand(row) for row in given_rows])
    torch.testing.assert_close(adjusted, expected, rtol=1e-5, atol=1e-5)


def test_a_row_without_penalty_keeps_every_bit_beside_one_with() -> None:
    batch = neutral(2)
    batch.repetition_penalty = torch.tensor([1.0, 1.3])
    batch.presence_penalty = torch.tensor([0.0, 0.5])
    batch.prompt_mask = torch.ones(2, VOCAB, dtype=torch.bool)
    batch.output_counts = torch.full((2, VOCAB), 3, dtype=torch.int32)
    batch.any_penalty = True
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(1))
    before = logits.clone()
    adjust_logits(logits, batch)
    assert torch.equal(logits[0], before[0])
    assert not (logits[1] == before[1]).any()


def test_nothing_asked_for_changes_nothing() -> None:
    logits = torch.tensor([[1.0, math.nan, -math.inf, -0.0, 2.0]])
    before = logits.clone()
    adjust_logits(logits, neutral(1))
    assert torch.equal(logits.view(torch.int32), before.view(torch.int32))


def neutral(bs: int) -> SamplingBatch:
    """A batch that changes nothing."""
    zeros, ones = torch.zeros(bs), torch.ones(bs)
    return SamplingBatch(
        temperature=ones,
        top_k=torch.full((bs,), VOCAB, dtype=torch.int32),
        top_p=ones,
        min_p=zeros,
        seeds=zeros.long(),
        positions=zeros.long(),
        repetition_penalty=ones,
        frequency_penalty=zeros,
        presence_penalty=zeros,
    )
