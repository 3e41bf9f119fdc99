"""`RadixAttention`: the attention layer of a model. It holds no state but its identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from core.attention.backend import AttentionBackend
from core.mem_cache.kv_pool import KVPool

if TYPE_CHECKING:
    from core.model_executor.forward_batch import ForwardBatch


@dataclass(frozen=True, slots=True)
class GroupForward:
    """What the layers of one KV group need in one forward pass; valid for that pass."""

    backend: AttentionBackend
    kv_pool: KVPool
    batch: ForwardBatch


class RadixAttention(nn.Module):
    """Writes this step's keys and values to the group's pool, then attends through the group's backend.

    Args:
        layer_id: index of the layer within its KV group.
        group_id: index of the KV group.
        sinks: `[num_qo_heads]` learnt logits, or None.
    """

    def __init__(self, layer_id: int, group_id: int = 0, sinks: nn.Parameter | None = None) -> None:
        super().__init__()
        self.layer_id = layer_id
        self.group_id = group_id
        self.sinks = sinks

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, groups: tuple[GroupForward, ...]
    ) -> torch.Tensor:
        """Shapes as in `AttentionBackend.forward`; mutates the pool at `out_cache_loc`."""
        group = groups[self.group_id]
        group.kv_pool.set_kv_buffer(self.layer_id, group.batch.out_cache_loc, k, v)
        return group.backend.forward(q, k, v, self, group.batch)
