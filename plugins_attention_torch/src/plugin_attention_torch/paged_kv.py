"""Reading keys and values of whole rows out of the paged pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from core import BackendContext

from .products import MANY_KEYS


@dataclass(frozen=True, slots=True)
class Located:
    """Where the pool keeps some keys and values, and the scratch memory that they are gathered to; for all layers.

    Attributes:
        slots: `[n * num_keys]` int64.
        k_gathered: `[n * num_keys, num_kv_heads * head_dim]`, as the pool has them; `v_gathered` likewise.
        k_source: a view of it, `[n, num_kv_heads, num_keys, head_dim]`; `v_source` likewise.
        k: the same contiguous and in the dtype to compute in, or `k_source` itself; `v` likewise.
    """

    slots: torch.Tensor
    k_gathered: torch.Tensor
    v_gathered: torch.Tensor
    k_source: torch.Tensor
    v_source: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


@final
class PagedKV:
    """Gathers rows of one KV group's pool into scratch memory.

    Tokens are gathered whole: that reads memory in the longest runs that pages of any order allow. Unless they are few,
    they are then moved head by head, because all products run faster over contiguous `[num_keys, head_dim]` matrices.
    """

    def __init__(self, context: BackendContext, dtype: torch.dtype) -> None:
        geometry, pool = context.geometry, context.kv_pool
        self._page_size = context.page_size
        self._page_table = context.page_table
        self._num_kv_heads = geometry.num_kv_heads
        self._k_width = geometry.num_kv_heads * geometry.head_dim
        self._v_width = geometry.num_kv_heads * geometry.v_head_dim
        buffers = [pool.get_kv_buffer(layer_id) for layer_id in range(geometry.num_layers)]
        self._lines = [(k.view(-1, self._k_width), v.view(-1, self._v_width)) for k, v in buffers]
        stored = torch.empty(0, dtype=pool.layout.dtype, device=context.device)
        computed = torch.empty(0, dtype=dtype, device=context.device)
        self._as_stored, self._as_computed = [stored, stored], [computed, computed]

    def locate(self, rows: torch.Tensor, first: torch.Tensor, last: torch.Tensor, num_keys: int) -> Located:
        """Find `num_keys` tokens of each row, from token `first` on.

        Tokens past `last` are replaced by `last`: only slots that the row has written are ever read, because 0 * NaN
        is NaN and anything may lie in the others.

        Args:
            rows: `[n]` int64 rows of the page table.
            first: `[n]` int64, first token to read.
            last: `[n]` int64, last valid token.
            num_keys: tokens to read of each row.

        Returns:
            What `gather` takes; valid while the rows keep their pages.
        """
        tokens = first.unsqueeze(1) + torch.arange(num_keys, device=first.device)
        tokens = torch.minimum(tokens, last.unsqueeze(1))
        pages = self._page_table[rows.unsqueeze(1), tokens // self._page_size].long()
        slots = (pages * self._page_size + tokens % self._page_size).view(-1)
        self._reserve(slots.numel() * max(self._k_width, self._v_width))

        shape = (rows.shape[0], num_keys, self._num_kv_heads, -1)
        k_gathered, v_gathered = (
            x[: slots.numel() * width].view(-1, width)
            for x, width in zip(self._as_stored, (self._k_width, self._v_width), strict=True)
        )
        k_source, v_source = k_gathered.view(shape).transpose(1, 2), v_gathered.view(shape).transpose(1, 2)
        if slots.numel() * self._num_kv_heads < MANY_KEYS and k_source.dtype == self._as_computed[0].dtype:
            return Located(slots, k_gathered, v_gathered, k_source, v_source, k_source, v_source)
        k, v = (
            x[: source.numel()].view(source.shape)
            for x, source in zip(self._as_computed, (k_source, v_source), strict=True)
        )
        return Located(slots, k_gathered, v_gathered, k_source, v_source, k, v)

    def gather(self, layer_id: int, located: Located) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys `[n, num_kv_heads, num_keys, head_dim]` and values `[..., v_head_dim]` of one layer.

        Every call overwrites what the one before returned.
        """
        keys, values = self._lines[layer_id]
        torch.index_select(keys, 0, located.slots, out=located.k_gathered)
        if located.k is not located.k_source:
            located.k.copy_(located.k_source)
        torch.index_select(values, 0, located.slots, out=located.v_gathered)
        if located.v is not located.v_source:
            located.v.copy_(located.v_source)
        return located.k, located.v

    def _reserve(self, numel: int) -> None:
        """Scratch memory for `numel` elements of keys, and as many of values.

        A fresh tensor a layer would be mapped and unmapped by the allocator each time, at more than the gather's cost.
        Made outside inference mode, so that callers in either mode may write to it.
        """
        if self._as_stored[0].numel() < numel:
            with torch.inference_mode(False):
                self._as_stored = [x.new_empty(numel) for x in self._as_stored]
                self._as_computed = [x.new_empty(numel) for x in self._as_computed]
