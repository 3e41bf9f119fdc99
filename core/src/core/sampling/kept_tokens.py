"""Which tokens top-k and top-p keep.

A row keeps a prefix of its tokens in the order of `core.sampling.ranking`, so one key says it all: the last one kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.sampling.batch import SamplingBatch
from core.sampling.ranking import key_ids, rank_keys, smallest_keys

_EVERY_KEY = torch.iinfo(torch.int64).max
_NUM_CANDIDATES_CPU = (512, 4096)
"""Candidates that are tried on a CPU before a row's whole vocabulary is sorted, at ten times the cost."""

_UNIT = 2.0**40
"""Weight of the likeliest token; 2^22 such weights still sum to less than 2^63."""


def dropped_tokens(
    logits: torch.Tensor, gaps: torch.Tensor, temperature: torch.Tensor, batch: SamplingBatch
) -> torch.Tensor:
    """The tokens that a row's top-k, or top-p on the renormalised rest, drops; never the likeliest.

    The cut does not depend on the other rows, nor on the device beyond its `exp`: probabilities are summed as integers,
    which no order of summation changes.

    Args:
        logits: `[bs, vocab_size]` float32, sanitised; not mutated.
        gaps: their `gaps_below_max`; not mutated.
        temperature: `[bs, 1]` float32, positive.
        batch: not mutated. Greedy rows drop nothing: they take the likeliest anyway.

    Returns:
        `[bs, vocab_size]` bool. Never waits for a device; on a CPU, where nothing is to be waited for, more tokens are
        ranked of those rows only that need it.
    """
    vocab_size = gaps.shape[-1]
    keys = rank_keys(logits)
    cuts = _Cuts.of(batch, vocab_size)
    enough = vocab_size if batch.max_top_k is None else min(batch.max_top_k, vocab_size)
    if gaps.device.type != "cpu":
        last, _ = _last_kept(keys, gaps, temperature, cuts, enough)
        return keys > last
    tries = [num for num in _NUM_CANDIDATES_CPU if num < enough]
    last, decided = _last_kept(keys, gaps, temperature, cuts, tries[0] if tries else enough)
    for num in [*tries[1:], enough]:
        rest = (~decided).flatten().nonzero().flatten()
        if not len(rest):
            break
        last[rest], decided[rest] = _last_kept(keys[rest], gaps[rest], temperature[rest], cuts.select(rest), num)
    return keys > last


@dataclass(frozen=True, slots=True)
class _Cuts:
    """What rows keep.

    Attributes:
        top_k: `[n, 1]` int64, from 1 to `vocab_size`.
        top_p: `[n, 1]` float32.
        keeps_all: `[n, 1]` bool.
        any_top_p: some row has a top-p.
        any_top_p_alone: some row may have a top-p and no top-k, so that it needs the sum over its vocabulary.
    """

    top_k: torch.Tensor
    top_p: torch.Tensor
    keeps_all: torch.Tensor
    any_top_p: bool
    any_top_p_alone: bool

    @staticmethod
    def of(batch: SamplingBatch, vocab_size: int) -> _Cuts:
        top_k = batch.top_k.long().clamp(1, vocab_size)
        keeps_all = ((top_k == vocab_size) & (batch.top_p >= 1)) | (batch.temperature <= 0)
        bounded = batch.max_top_k is not None and batch.max_top_k < vocab_size
        return _Cuts(
            top_k.unsqueeze(1),
            batch.top_p.unsqueeze(1),
            keeps_all.unsqueeze(1),
            batch.any_top_p,
            batch.any_top_p and not bounded,
        )

    def select(self, rows: torch.Tensor) -> _Cuts:
        return _Cuts(self.top_k[rows], self.top_p[rows], self.keeps_all[rows], self.any_top_p, self.any_top_p_alone)


def _last_kept(
    keys: torch.Tensor, gaps: torch.Tensor, temperature: torch.Tensor, cuts: _Cuts, num: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's last kept key, `[n, 1]`, and whether `num` candidates were enough to know it, `[n, 1]`."""
    vocab_size = keys.shape[-1]
    ranked = smallest_keys(keys, num)
    num_kept = cuts.top_k
    decided = cuts.top_k <= num
    if cuts.any_top_p:
        cumulative = _weights(gaps.gather(1, key_ids(ranked)), temperature).cumsum(dim=-1)
        total = cumulative.gather(1, (cuts.top_k - 1).clamp_max(num - 1))
        if cuts.any_top_p_alone:
            alone = cuts.top_k == vocab_size
            total = torch.where(alone, _weights(gaps, temperature).sum(dim=-1, keepdim=True), total)
            decided = decided | alone
        # Below a p of 1 the product, rounded as it is, never exceeds the total, so that top-k's last token reaches it.
        target = (cuts.top_p * total.float()).long()
        by_top_p = (cumulative < target).sum(dim=-1, keepdim=True) + 1
        num_kept = torch.where(cuts.top_p < 1, by_top_p, num_kept)
    last = ranked.gather(1, (num_kept - 1).clamp_max(num - 1))
    return last.masked_fill_(cuts.keeps_all, _EVERY_KEY), cuts.keeps_all | (decided & (num_kept <= num))


def _weights(gaps: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Probabilities relative to the likeliest token's, in units of 2^-40, int64."""
    return torch.exp(-(gaps / temperature)).mul_(_UNIT).long()
