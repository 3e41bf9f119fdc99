"""`Sampler`: the interface that turns logits into token ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from pydantic import BaseModel

from core.sampling.batch import SamplingBatch


@dataclass(frozen=True, slots=True)
class SamplerContext:
    """All that a sampler is made from. `max_rows` counts the dummy row 0."""

    vocab_size: int
    max_rows: int
    device: torch.device
    options: BaseModel


class Sampler(ABC):
    """Draws one token a row.

    The order is: penalties (repetition over prompt and output; frequency and presence over output), minimum length,
    grammar mask, logit bias, temperature, top-k, top-p, min-p, then the draw. `adjust_logits` of
    `core.sampling.logits` does the part up to the bias for samplers that have no kernel of their own for it.

    The draw is stateless: the noise of a token comes from a hash of (seed, position, token), see
    `core.sampling.noise`, so that a seeded request gives the same tokens alone, in any batch, on any sampler that
    declares `seeded`.
    """

    def __init__(self, context: SamplerContext) -> None:
        self.context = context

    @abstractmethod
    def sample(self, logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
        """Draw one token for each row.

        Args:
            logits: `[bs, vocab_size]` float32, on the device; may be mutated.
            batch: the rows' parameters; not mutated.

        Returns:
            `[bs]` int64 token ids on the device. Never synchronises with the host.
        """
