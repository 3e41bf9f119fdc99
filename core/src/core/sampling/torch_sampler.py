"""The reference sampler: any device, plain PyTorch. Others are tested against it."""

from __future__ import annotations

from typing import final

import torch

from core.sampling.batch import SamplingBatch
from core.sampling.kept_tokens import dropped_tokens
from core.sampling.logits import adjust_logits
from core.sampling.noise import gumbel_noise
from core.sampling.ranking import gaps_below_max, sanitize
from core.sampling.sampler import Sampler


@final
class TorchSampler(Sampler):
    """Draws by the Gumbel-max trick over the tokens that are kept, with the noise of `core.sampling.noise`.

    A temperature may be as small or as large as float32 goes: logits are taken relative to the row's largest before
    they are divided, so that the likeliest token scores 0 and nothing becomes NaN. At equal scores the lower id wins.

    A NaN logit counts as -inf. A row without any token left, all of them -inf, gives id 0.
    """

    def sample(self, logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
        logits = sanitize(adjust_logits(logits, batch))
        if batch.all_greedy:
            return logits.argmax(dim=-1)
        gaps = gaps_below_max(logits)
        greedy = (batch.temperature <= 0).unsqueeze(1)
        temperature = batch.temperature.unsqueeze(1).masked_fill(greedy, 1.0)
        scores = gumbel_noise(batch.seeds, batch.positions, torch.arange(logits.shape[-1], device=logits.device))
        if batch.any_greedy:
            scores.masked_fill_(greedy, 0.0)
        scaled = gaps / temperature
        scores.sub_(scaled)
        if batch.any_top_k or batch.any_top_p:
            scores.masked_fill_(dropped_tokens(logits, gaps, temperature, batch), -torch.inf)
        if batch.any_min_p:
            # p < min_p * p_max, in logarithms. min_p is at most 1, so that the likeliest token, at 0, stays.
            scores.masked_fill_(scaled > batch.min_p.unsqueeze(1).log().neg_(), -torch.inf)
        return scores.argmax(dim=-1)
