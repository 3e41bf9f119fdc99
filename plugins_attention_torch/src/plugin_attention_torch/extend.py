"""Rows with several new tokens, one after the other, in query chunks that bound the memory of the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from core import BackendContext, ForwardBatch

from .paged_kv import Located, PagedKV
from .products import Products

_MAX_QUERIES = 256
"""Queries of a chunk: few enough to skip most keys that none of them sees, many enough to fill a kernel (measured)."""

_MAX_SCORE_BYTES = 64 << 20
"""Most bytes of one chunk's float32 scores, where the kernel keeps them."""


@final
class CausalMask:
    """0 and -inf for queries at the end of their keys, cut out of one strip: no step builds a mask of its own.

    `strip[i, y]` says whether a query sees the key that is `reach + i - y` tokens before it. Whatever the lengths, the
    mask of a chunk is therefore a slice of columns.
    """

    def __init__(self, window: int | None, dtype: torch.dtype, device: torch.device) -> None:
        self._window = window
        self._reach = 0
        self._strip = torch.empty(0, 0, dtype=dtype, device=device)

    def last_queries(self, num_queries: int, num_keys: int) -> torch.Tensor:
        """`[num_queries, num_keys]` of the last queries of a row, of which the keys end with the last query's own.

        A view: valid for good, but not to be written to.
        """
        before = num_keys - num_queries
        if self._strip.numel() == 0 or before > self._reach:
            self._grow(before)
        mask = self._strip[:num_queries, self._reach - before : self._reach + num_queries]
        # Torch's CUDA kernels read a mask in long words, and a slice may begin anywhere.
        return mask if mask.device.type == "cpu" else mask.clone(memory_format=torch.contiguous_format)

    def _grow(self, reach: int) -> None:
        self._reach = max(256, 1 << (reach - 1).bit_length())
        dtype, device = self._strip.dtype, self._strip.device
        width = self._reach + _MAX_QUERIES
        with torch.inference_mode(False):
            query = torch.arange(_MAX_QUERIES, device=device).unsqueeze(1) + self._reach
            age = query - torch.arange(width, device=device)
            hidden = age < 0 if self._window is None else (age < 0) | (age >= self._window)
            strip = torch.zeros(_MAX_QUERIES, width, dtype=dtype, device=device)
            self._strip = strip.masked_fill_(hidden, float("-inf"))


@dataclass(frozen=True, slots=True)
class QueryChunk:
    """Tokens `start` to `stop` of the batch, which see some of the row's keys `first_key` to `last_key`."""

    start: int
    stop: int
    first_key: int
    stop_key: int
    mask: torch.Tensor


@dataclass(frozen=True, slots=True)
class ExtendRow:
    """One row, ready for every layer.

    `keys` is None where this step's own are all.
    """

    start: int
    stop: int
    keys: Located | None
    chunks: list[QueryChunk]


@final
class Extend:
    """Attention of rows with several new tokens."""

    def __init__(self, context: BackendContext, kv: PagedKV, products: Products) -> None:
        self._kv = kv
        self._products = products
        self._window = context.geometry.window
        self._stored_as_given = context.kv_pool.layout.dtype == context.dtype
        self._num_qo_heads = context.geometry.num_qo_heads
        self._mask = CausalMask(context.geometry.window, products.dtype, context.device)

    def plan_row(self, batch: ForwardBatch, row: int, start: int, num_queries: int, seq_len: int) -> ExtendRow:
        """Plan one row of a step.

        Args:
            batch: the batch.
            row: index of the row in the batch.
            start: index of its first token in the batch.
            num_queries: its new tokens.
            seq_len: all its tokens.
        """
        prefix_len = seq_len - num_queries
        first_key = self._first_key(prefix_len)
        keys = None
        if prefix_len > 0 or not self._stored_as_given:
            table_row = batch.req_pool_indices[row : row + 1]
            first = torch.full_like(table_row, first_key)
            keys = self._kv.locate(table_row, first, torch.full_like(table_row, seq_len - 1), seq_len - first_key)
        score_bytes = 4 * self._num_qo_heads * (seq_len - first_key)
        step = max(1, min(_MAX_QUERIES, _MAX_SCORE_BYTES // score_bytes))
        chunks = []
        for begin in range(0, num_queries, step):
            end = min(begin + step, num_queries)
            chunk_first, chunk_stop = self._first_key(prefix_len + begin), prefix_len + end
            mask = self._mask.last_queries(end - begin, chunk_stop - chunk_first)
            chunks.append(QueryChunk(start + begin, start + end, chunk_first - first_key, chunk_stop - first_key, mask))
        return ExtendRow(start, start + num_queries, keys, chunks)

    def forward(
        self,
        row: ExtendRow,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        layer_id: int,
        sinks: torch.Tensor | None,
    ) -> None:
        """Write one row's tokens of `out`; q, k, v and out as in `AttentionBackend.forward`."""
        if row.keys is None:
            new = slice(row.start, row.stop)
            keys, values = (x[new].transpose(0, 1).to(self._products.dtype) for x in (k, v))
        else:
            keys, values = (x.squeeze(0) for x in self._kv.gather(layer_id, row.keys))
        for chunk in row.chunks:
            queries, seen = slice(chunk.start, chunk.stop), slice(chunk.first_key, chunk.stop_key)
            out[queries] = self._products.many_queries(
                q[queries].to(self._products.dtype), keys[:, seen], values[:, seen], chunk.mask, sinks
            )

    def _first_key(self, position: int) -> int:
        """The first key that the query at `position` sees."""
        return 0 if self._window is None else max(0, position - self._window + 1)
