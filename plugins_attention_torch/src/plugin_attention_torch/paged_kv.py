"""Reading keys and values of whole rows out of the paged pool."""

from __future__ import annotations

from typing import final

import torch

from core import BackendContext


@final
class PagedKV:
    """Gathers rows of one KV group's pool into contiguous, head-major tensors.

    Head-major, because every later product then runs over contiguous `[width, head_dim]` matrices: the strided ones
    that a token-major gather leaves cost more than the finer gather.
    """

    def __init__(self, context: BackendContext) -> None:
        geometry, pool = context.geometry, context.kv_pool
        self._page_size = context.page_size
        self._page_table = context.page_table
        self._num_kv_heads = geometry.num_kv_heads
        self._dtype = context.dtype
        self._heads = torch.arange(geometry.num_kv_heads, device=context.device).unsqueeze(1)
        buffers = [pool.get_kv_buffer(layer_id) for layer_id in range(geometry.num_layers)]
        # One line a (slot, head), in that order, as the NHD layout has them.
        self._lines = [(k.view(-1, k.shape[-1]), v.view(-1, v.shape[-1])) for k, v in buffers]
        self._scratch = [torch.empty(0, dtype=pool.layout.dtype, device=context.device) for _ in ("k", "v")]

    @property
    def stored_as_computed(self) -> bool:
        """Whether the pool keeps keys and values in the dtype of the queries, to the bit."""
        return self._scratch[0].dtype == self._dtype

    def locate(self, rows: torch.Tensor, first: torch.Tensor, last: torch.Tensor, width: int) -> torch.Tensor:
        """Where the pool keeps `width` tokens of each row, from token `first` on; what `gather` takes.

        Tokens past `last` are replaced by `last`: only slots that the row has written are ever read, because 0 * NaN
        is NaN and anything may lie in the others.

        Args:
            rows: `[n]` int64 rows of the page table.
            first: `[n]` int64, first token to read.
            last: `[n]` int64, last valid token.
            width: tokens to read of each row.

        Returns:
            `[n, num_kv_heads, width]` int64.
        """
        tokens = first.unsqueeze(1) + torch.arange(width, device=first.device)
        tokens = torch.minimum(tokens, last.unsqueeze(1))
        pages = self._page_table[rows.unsqueeze(1), tokens // self._page_size].long()
        slots = pages * self._page_size + tokens % self._page_size
        return slots.unsqueeze(1) * self._num_kv_heads + self._heads

    def gather(self, layer_id: int, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys `[n, num_kv_heads, width, head_dim]` and values `[..., v_head_dim]` at `index`, in the queries' dtype.

        They live in scratch memory that every call overwrites: use them before the next call.
        """
        return self._read(0, layer_id, index), self._read(1, layer_id, index)

    def _read(self, which: int, layer_id: int, index: torch.Tensor) -> torch.Tensor:
        lines = self._lines[layer_id][which]
        head_dim = lines.shape[1]
        numel = index.numel() * head_dim
        if self._scratch[which].numel() < numel:
            # A fresh tensor a layer would be mapped and unmapped by the allocator each time, at more than the gather's
            # cost. Outside inference mode, so that callers in either mode may write to it.
            with torch.inference_mode(False):
                self._scratch[which] = torch.empty(numel, dtype=lines.dtype, device=lines.device)
        out = self._scratch[which][:numel].view(-1, head_dim)
        torch.index_select(lines, 0, index.view(-1), out=out)
        return out.view(*index.shape, head_dim).to(self._dtype)
