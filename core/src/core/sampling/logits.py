"""What is done to logits before temperature: penalties, minimum length, grammar mask, logit bias.

Imports torch; a sampler's implementation imports `adjust_logits` from here.
"""

from __future__ import annotations

import torch

from core.sampling.batch import SamplingBatch


def adjust_logits(logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
    """Apply what `batch` asks for, in the order of `Sampler`.

    Args:
        logits: `[bs, vocab_size]` float32; mutated.
        batch: the rows' parameters; not mutated.

    Returns:
        `logits`. Tokens that must not be drawn are -inf. Never synchronises with the host.
    """
    if batch.any_penalty:
        _penalize(logits, batch)
    if batch.banned is not None:
        # A scalar that lives on the device: one from the host would be a copy that waits.
        logits.index_put_(batch.banned, logits.new_full((), -torch.inf))
    if batch.vocab_mask is not None:
        logits.masked_fill_(~batch.vocab_mask, -torch.inf)
    if batch.logit_bias is not None:
        logits.add_(batch.logit_bias)
    return logits


def _penalize(logits: torch.Tensor, batch: SamplingBatch) -> None:
    """The repetition penalty of CTRL (Keskar et al. 2019), then OpenAI's frequency and presence penalties, in place.

    A row without a penalty has factors that leave its logits as they are, bit for bit, whatever its counts hold.
    """
    assert batch.prompt_mask is not None, "any_penalty comes with prompt_mask"
    assert batch.output_counts is not None, "any_penalty comes with output_counts"
    in_output = batch.output_counts > 0
    repetition = batch.repetition_penalty.unsqueeze(1)
    repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
    torch.where(batch.prompt_mask | in_output, repeated, logits, out=logits)
    logits.sub_(batch.output_counts * batch.frequency_penalty.unsqueeze(1))
    logits.sub_(in_output * batch.presence_penalty.unsqueeze(1))
