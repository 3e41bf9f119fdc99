"""Random batches for attention backends, laid out as unkindly as the contract allows.

Pages of a row are neither adjacent nor ascending, rows share the pages of a common prefix, every slot that no row has
written holds NaN, page 0 too, and so do all layers but the last. The page table's unused entries name other rows'
pages.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import nn

from core.attention.backend import BackendContext
from core.attention.radix_attention import RadixAttention
from core.mem_cache.geometry import KVGroupGeometry
from core.mem_cache.kv_pool import KVPool, KVPoolContext
from core.model_executor.forward_batch import ForwardBatch
from core.model_executor.forward_mode import ForwardMode
from core.specs import NoOptions
from core.testing.attention_reference import eager_attention, reference_attention
from core.testing.dense_kv_pool import DenseKVPool


@dataclass(frozen=True, slots=True)
class RowCase:
    """One row of a batch: `prefix_len` tokens that the pool holds already, and `num_new` that this step brings.

    A padding row has length 0: no token of its own, but `num_new` tokens of the batch.
    """

    prefix_len: int
    num_new: int = 1
    padding: bool = False

    @property
    def seq_len(self) -> int:
        return 0 if self.padding else self.prefix_len + self.num_new


def decode_rows(*seq_lens: int) -> list[RowCase]:
    """Rows of a decode step with these lengths, the new token included; 0 makes a padding row."""
    return [RowCase(max(0, seq_len - 1), 1, padding=seq_len == 0) for seq_len in seq_lens]


@dataclass(slots=True)
class AttentionCase:
    """One step of one layer, with all that a backend needs; nothing in the pool is written by this step any more.

    `q`, `k`, `v` are as in `AttentionBackend.forward`; `k_cache` and `v_cache` are what the pool holds of the layer,
    in NHD order whatever the pool's own is.
    """

    rows: list[RowCase]
    context: BackendContext
    batch: ForwardBatch
    layer: RadixAttention
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor

    def select(self, rows: Sequence[int]) -> AttentionCase:
        """The step of some of the rows only, over the same memory."""
        starts = list(accumulate((row.num_new for row in self.rows), initial=0))
        tokens = [token for i in rows for token in range(starts[i], starts[i + 1])]
        table_rows, out_cache_loc = self.batch.req_pool_indices.tolist(), self.batch.out_cache_loc.tolist()
        kept = [self.rows[i] for i in rows]
        batch = build_batch(
            kept,
            self.batch.forward_mode,
            [table_rows[i] for i in rows],
            [out_cache_loc[token] for token in tokens],
            str(self.context.device),
        )
        return replace(self, rows=kept, batch=batch, q=self.q[tokens], k=self.k[tokens], v=self.v[tokens])

    def reference(self) -> torch.Tensor:
        """The true result in float64, on the CPU."""
        return self._computed_by(reference_attention)

    def eager(self) -> torch.Tensor:
        """The result of eager code in the queries' dtype, on the CPU."""
        return self._computed_by(eager_attention)

    def _computed_by(self, attention: Callable[..., torch.Tensor]) -> torch.Tensor:
        geometry = self.context.geometry
        return attention(
            self.q,
            self.k_cache,
            self.v_cache,
            self.context.page_table,
            self.batch.req_pool_indices,
            self.batch.seq_lens,
            torch.tensor([row.num_new for row in self.rows]),
            self.context.page_size,
            geometry.scale,
            window=geometry.window,
            soft_cap=geometry.soft_cap,
            sinks=self.layer.sinks,
        )


def build_geometry(
    *,
    num_qo_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 64,
    v_head_dim: int | None = None,
    window: int | None = None,
    soft_cap: float | None = None,
    sinks: bool = False,
    num_layers: int = 2,
) -> KVGroupGeometry:
    """A geometry with everyday defaults; the scale is the usual 1 / sqrt(head_dim)."""
    return KVGroupGeometry(
        num_layers=num_layers,
        num_qo_heads=num_qo_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        v_head_dim=head_dim if v_head_dim is None else v_head_dim,
        scale=head_dim**-0.5,
        window=window,
        soft_cap=soft_cap,
        sinks=sinks,
    )


def build_case(
    rows: Sequence[RowCase],
    *,
    mode: ForwardMode,
    geometry: KVGroupGeometry | None = None,
    page_size: int = 16,
    dtype: torch.dtype = torch.float32,
    kv_dtype: torch.dtype | None = None,
    shared_len: int = 0,
    device: str = "cpu",
    pool: Callable[[KVPoolContext], KVPool] = DenseKVPool,
    seed: int = 0,
) -> AttentionCase:
    """A random step.

    Args:
        rows: the batch; for `MIXED`, extending rows first.
        mode: kind of step.
        geometry: of the KV group; the case is about its last layer.
        page_size: tokens a page.
        dtype: of queries and outputs.
        kv_dtype: of the pool; `dtype` if None.
        shared_len: rows share the full pages of their first so many tokens, where their prefix is that long.
        device: where everything lives.
        pool: makes the pool.
        seed: of values and layout.
    """
    geometry = geometry or build_geometry()
    random_layout, draw = random.Random(seed), torch.Generator().manual_seed(seed)
    pages = _assign_pages(rows, page_size, shared_len, random_layout)
    num_pages = 1 + max((page for row in pages for page in row), default=0) + 2
    kv_pool = pool(KVPoolContext(geometry, num_pages, page_size, kv_dtype or dtype, torch.device(device), NoOptions()))

    table, table_rows = _build_page_table(pages, num_pages, random_layout)
    written = _written_slots(rows, pages, page_size)
    k_cache, v_cache = _fill(kv_pool, geometry, dtype, num_pages * page_size, written, draw)
    out_cache_loc = [
        slot for row, row_pages in zip(rows, pages, strict=True) for slot in _new(row, row_pages, page_size)
    ]
    batch = build_batch(rows, mode, table_rows, out_cache_loc, device)
    sinks = nn.Parameter(torch.randn(geometry.num_qo_heads, generator=draw).to(dtype)) if geometry.sinks else None
    # Twice the usual spread: a softmax over few large weights, so that a key too many or too few shows.
    q = (2 * torch.randn(batch.num_tokens, geometry.num_qo_heads, geometry.head_dim, generator=draw)).to(dtype)
    context = BackendContext(
        geometry=geometry,
        page_size=page_size,
        kv_pool=kv_pool,
        page_table=table.to(device),
        dtype=dtype,
        max_bs=len(rows),
        max_num_tokens=batch.num_tokens,
        max_context_len=table.shape[1] * page_size,
        device=torch.device(device),
        options=NoOptions(),
    )
    return AttentionCase(
        rows=list(rows),
        context=context,
        batch=batch,
        layer=RadixAttention(geometry.num_layers - 1, sinks=sinks).to(device),
        q=q.to(device),
        k=k_cache[out_cache_loc].to(dtype).to(device),
        v=v_cache[out_cache_loc].to(dtype).to(device),
        k_cache=k_cache.to(kv_dtype or dtype).view(num_pages, page_size, geometry.num_kv_heads, -1).to(device),
        v_cache=v_cache.to(kv_dtype or dtype).view(num_pages, page_size, geometry.num_kv_heads, -1).to(device),
    )


def build_batch(
    rows: Sequence[RowCase], mode: ForwardMode, table_rows: list[int], out_cache_loc: list[int], device: str
) -> ForwardBatch:
    """The `ForwardBatch` of these rows, every host copy included, as the worker would build it."""
    num_new = [row.num_new for row in rows]
    seq_lens = [row.seq_len for row in rows]
    prefix_lens = [row.prefix_len for row in rows]
    positions = [position for row in rows for position in range(row.prefix_len, row.prefix_len + row.num_new)]
    batch = ForwardBatch(
        forward_mode=mode,
        bs=len(rows),
        num_tokens=len(positions),
        input_ids=torch.zeros(len(positions), dtype=torch.int64, device=device),
        positions=torch.tensor(positions, dtype=torch.int64, device=device),
        req_pool_indices=torch.tensor(table_rows, dtype=torch.int64, device=device),
        seq_lens=torch.tensor(seq_lens, dtype=torch.int32, device=device),
        out_cache_loc=torch.tensor(out_cache_loc, dtype=torch.int64, device=device),
        seq_lens_cpu=seq_lens,
    )
    if mode.is_extend_or_mixed():
        batch.extend_seq_lens = torch.tensor(num_new, dtype=torch.int32, device=device)
        batch.extend_prefix_lens = torch.tensor(prefix_lens, dtype=torch.int32, device=device)
        batch.qo_indptr = torch.tensor(list(accumulate(num_new, initial=0)), dtype=torch.int32, device=device)
        batch.extend_seq_lens_cpu, batch.extend_prefix_lens_cpu = num_new, prefix_lens
    return batch


def _assign_pages(rows: Sequence[RowCase], page_size: int, shared_len: int, layout: random.Random) -> list[list[int]]:
    """Page ids of each row, shuffled over a pool with room to spare; never page 0."""
    wanted = [-(-row.seq_len // page_size) for row in rows]
    free = list(range(1, 2 * sum(wanted) + shared_len // page_size + 4))
    layout.shuffle(free)
    shared = [free.pop() for _ in range(shared_len // page_size)]
    pages = []
    for row, count in zip(rows, wanted, strict=True):
        kept = shared[: min(row.prefix_len, row.seq_len) // page_size]
        pages.append(kept + [free.pop() for _ in range(count - len(kept))])
    return pages


def _build_page_table(pages: list[list[int]], num_pages: int, layout: random.Random) -> tuple[torch.Tensor, list[int]]:
    """The table and the row of it that each row of the batch has; unused entries are any valid page."""
    table_rows = list(range(1, 2 * len(pages) + 2))
    layout.shuffle(table_rows)
    width = max((len(row) for row in pages), default=0) + 2
    table = [[layout.randrange(num_pages) for _ in range(width)] for _ in range(2 * len(pages) + 2)]
    for row, row_pages in zip(table_rows, pages, strict=False):
        table[row][: len(row_pages)] = row_pages
    return torch.tensor(table, dtype=torch.int32), table_rows[: len(pages)]


def _written_slots(rows: Sequence[RowCase], pages: list[list[int]], page_size: int) -> list[int]:
    """Every slot that holds a token of some row."""
    slots = {
        row_pages[token // page_size] * page_size + token % page_size
        for row, row_pages in zip(rows, pages, strict=True)
        for token in range(row.seq_len)
    }
    return sorted(slots)


def _new(row: RowCase, row_pages: list[int], page_size: int) -> list[int]:
    """The slots of a row's new tokens; those of a padding row all go to page 0."""
    if row.padding:
        return [0] * row.num_new
    new = range(row.prefix_len, row.seq_len)
    return [row_pages[token // page_size] * page_size + token % page_size for token in new]


def _fill(
    pool: KVPool,
    geometry: KVGroupGeometry,
    dtype: torch.dtype,
    num_slots: int,
    written: list[int],
    draw: torch.Generator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fill the pool with NaN, but `written` of the last layer with random keys and values; returns that layer.

    The values are exact in the queries' dtype and in the pool's, so that it does not matter which of the two is read.
    """
    kv_dtype, device = pool.layout.dtype, pool.context.device
    caches = []
    for head_dim in (geometry.head_dim, geometry.v_head_dim):
        cache = torch.full((num_slots, geometry.num_kv_heads, head_dim), float("nan"))
        values = torch.randn(len(written), geometry.num_kv_heads, head_dim, generator=draw)
        cache[written] = values.to(dtype).to(kv_dtype).to(dtype).float()
        caches.append(cache)
    k_cache, v_cache = caches
    everywhere = torch.arange(num_slots, device=device)
    for layer_id in range(geometry.num_layers - 1):
        nan_k, nan_v = torch.full_like(k_cache, float("nan")), torch.full_like(v_cache, float("nan"))
        pool.set_kv_buffer(layer_id, everywhere, nan_k.to(device), nan_v.to(device))
    pool.set_kv_buffer(geometry.num_layers - 1, everywhere, k_cache.to(device), v_cache.to(device))
    return k_cache, v_cache
