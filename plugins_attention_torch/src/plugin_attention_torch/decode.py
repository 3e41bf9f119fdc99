"""Rows with one new token: all at once, in a few chunks of similar length; no loop over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch

from core import BackendContext, ForwardBatch

from .paged_kv import Located, PagedKV
from .products import Products

_KEYS_ALIGNMENT = 32
"""Numbers of keys are rounded up to it: oneDNN compiles a kernel for each new shape, at more than a layer's cost."""

_WORTH_A_CHUNK = 1024
"""Keys of padding that cost as much as the calls of one more chunk (measured)."""

_GATHER_BYTES = {"cpu": 4 << 20}
"""Gathered keys and values of a chunk, by device type: on a CPU they stay in its cache."""
_GATHER_BYTES_ELSEWHERE = 256 << 20


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """Rows `start` to `stop`, in order of length, padded to `num_keys` keys each."""

    start: int
    stop: int
    num_keys: int


def split_by_length(num_keys: Sequence[int], max_chunk_keys: int) -> list[ChunkShape]:
    """Cut rows, longest first, into chunks so that padding does not dominate.

    A chunk has at most `max_chunk_keys` keys, padding included, unless one row alone has more. It ends where rows get
    shorter than half of its longest one, if the padding that this saves is worth another chunk's calls: the work is at
    most about twice the least.

    Args:
        num_keys: keys of each row, positive, descending.
        max_chunk_keys: most keys of a chunk.
    """
    padded = [-(-n // _KEYS_ALIGNMENT) * _KEYS_ALIGNMENT for n in num_keys]
    chunks: list[ChunkShape] = []
    start = 0
    for i in range(1, len(padded) + 1):
        if i < len(padded):
            full = (i - start + 1) * padded[start] > max_chunk_keys
            uneven = padded[i] * 2 <= padded[start]
            if not full and not (uneven and (len(padded) - i) * (padded[start] - padded[i]) > _WORTH_A_CHUNK):
                continue
        chunks.append(ChunkShape(start, i, padded[start]))
        start = i
    return chunks


@dataclass(frozen=True, slots=True)
class DecodeChunk:
    """One chunk, ready for every layer: `mask` is `[rows, num_keys]`."""

    start: int
    stop: int
    keys: Located
    mask: torch.Tensor


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """What the layers share. `tokens` `[rows]` int64: the token of each planned row.

    `tokens` is None where one chunk holds every token of the batch, in order.
    """

    chunks: list[DecodeChunk]
    tokens: torch.Tensor | None


@final
class Decode:
    """Attention of rows with one new token."""

    def __init__(self, context: BackendContext, kv: PagedKV, products: Products) -> None:
        geometry = context.geometry
        self._kv = kv
        self._products = products
        self._window = geometry.window
        self._device = context.device
        layout = context.kv_pool.layout
        key_bytes = layout.num_kv_heads * (layout.head_dim + layout.v_head_dim) * layout.dtype.itemsize
        self._max_chunk_keys = _GATHER_BYTES.get(context.device.type, _GATHER_BYTES_ELSEWHERE) // key_bytes

    def plan(self, batch: ForwardBatch, rows: Sequence[int], tokens: Sequence[int]) -> DecodePlan:
        """Plan one step.

        Args:
            batch: the batch.
            rows: indices in the batch of the rows with one new token, each of positive length.
            tokens: index of that token of each of these rows.
        """
        assert batch.seq_lens_cpu is not None
        lens = batch.seq_lens_cpu
        order = sorted(range(len(rows)), key=lambda i: -lens[rows[i]])
        limit = self._window or max(lens, default=0)
        shapes = split_by_length([min(lens[rows[i]], limit) for i in order], self._max_chunk_keys)
        if len(rows) == batch.num_tokens and len(shapes) == 1:
            return DecodePlan([self._chunk(shapes[0], batch.req_pool_indices, batch.seq_lens.long())], None)
        rows_by_length = self._upload([rows[i] for i in order])
        table_rows, seq_lens = batch.req_pool_indices[rows_by_length], batch.seq_lens[rows_by_length].long()
        chunks = [self._chunk(s, table_rows[s.start : s.stop], seq_lens[s.start : s.stop]) for s in shapes]
        return DecodePlan(chunks, self._upload([tokens[i] for i in order]))

    def forward(
        self, plan: DecodePlan, q: torch.Tensor, out: torch.Tensor, layer_id: int, sinks: torch.Tensor | None
    ) -> None:
        """Write the planned rows of `out`; q and out as in `AttentionBackend.forward`."""
        assert plan.tokens is not None
        q = q.index_select(0, plan.tokens)
        for chunk in plan.chunks:
            rows = slice(chunk.start, chunk.stop)
            out.index_copy_(0, plan.tokens[rows], self.forward_chunk(chunk, q[rows], layer_id, sinks))

    def forward_chunk(
        self, chunk: DecodeChunk, q: torch.Tensor, layer_id: int, sinks: torch.Tensor | None
    ) -> torch.Tensor:
        """The result of one chunk's rows, from their queries; fresh."""
        k, v = self._kv.gather(layer_id, chunk.keys)
        return self._products.one_query_a_row(q.to(self._products.dtype), k, v, chunk.mask, sinks).to(q.dtype)

    def _chunk(self, shape: ChunkShape, table_rows: torch.Tensor, seq_lens: torch.Tensor) -> DecodeChunk:
        first = torch.zeros_like(seq_lens) if self._window is None else (seq_lens - self._window).clamp_(min=0)
        keys = self._kv.locate(table_rows, first, seq_lens - 1, shape.num_keys)
        num_keys = (seq_lens - first).unsqueeze(1)
        padding = torch.arange(shape.num_keys, device=self._device) >= num_keys
        mask = torch.zeros(padding.shape, dtype=self._products.dtype, device=self._device)
        return DecodeChunk(shape.start, shape.stop, keys, mask.masked_fill_(padding, float("-inf")))

    def _upload(self, values: list[int]) -> torch.Tensor:
        host = torch.tensor(values, dtype=torch.int64)
        if self._device.type == "cpu":
            return host
        # Pinned, so that the copy waits for nothing; the caching allocator keeps the memory until it is done.
        return host.pin_memory().to(self._device, non_blocking=True)
