"""Log-probabilities under the model's own distribution, before penalties and temperature."""

from __future__ import annotations

import torch

from core.sampling.ranking import gaps_below_max, key_ids, rank_keys, sanitize, smallest_keys


def gather_logprobs(
    logits: torch.Tensor, token_ids: torch.Tensor, num_top: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Natural-log probabilities of given tokens and of the likeliest ones.

    Never synchronises with the host. It needs room for a few tensors of the size of `logits` for a moment; a caller
    with many tokens passes them in pieces.

    Args:
        logits: `[n, vocab_size]`, any floating dtype; computed in float32. Not mutated. NaN counts as -inf.
        token_ids: `[n]` int64.
        num_top: how many of the likeliest; at most `vocab_size` are reported.

    Returns:
        `[n]` float32 of `token_ids`; `[n, k]` int64 ids of the likeliest, likeliest first and at equal logits the lower
        id first; `[n, k]` float32, theirs. A token that cannot occur has -inf.
    """
    logits = sanitize(logits.to(torch.float32, copy=True))
    gaps = gaps_below_max(logits)
    # At least 1, the likeliest token's own share, except in a row of nothing but -inf.
    log_sum = torch.exp(-gaps).sum(dim=-1, keepdim=True).clamp_min_(1.0).log_()
    chosen = gaps.gather(1, token_ids.unsqueeze(1)).add_(log_sum).neg_().squeeze(1)
    num = min(num_top, gaps.shape[-1])
    if num == 0:
        return chosen, token_ids.new_empty(len(token_ids), 0), chosen.new_empty(len(token_ids), 0)
    top_ids = key_ids(smallest_keys(rank_keys(logits), num))
    return chosen, top_ids, gaps.gather(1, top_ids).add_(log_sum).neg_()
