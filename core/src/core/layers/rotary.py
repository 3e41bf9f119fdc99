"""`RotaryTable`: cos and sin of the rotary position embeddings, for every position that there can be."""

from __future__ import annotations

from typing import final

import torch

from core.layers.placement import Placement
from core.layers.rope_frequencies import attention_scaling, inverse_frequencies
from core.layers.rope_settings import RopeSettings


@final
class RotaryTable:
    """Holds 2 x `max_positions` x `head_dim` numbers on the device, constant after construction.

    Args:
        settings: of the model.
        head_dim: size of a head; all of it is rotated.
        max_positions: positions run from 0 below this.
        placement: of the table. The angles, their cos and sin are computed in float32 and then rounded.
    """

    def __init__(self, settings: RopeSettings, *, head_dim: int, max_positions: int, placement: Placement) -> None:
        positions = torch.arange(max_positions, dtype=torch.float32, device=placement.device)
        angles = positions[:, None] * inverse_frequencies(settings, head_dim, positions)
        scaling = attention_scaling(settings)
        cos, sin = (angles.cos() * scaling).to(placement.dtype), (angles.sin() * scaling).to(placement.dtype)
        self._table = torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], 1).unsqueeze(2)

    def lookup(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin in the form that `LayerOps` take, for one forward pass.

        Args:
            positions: `[num_tokens]` int64.

        Returns:
            cos and sin, `[num_tokens, 1, head_dim]` each: fresh tensors.
        """
        cos, sin = self._table[positions].unbind(1)
        return cos, sin
