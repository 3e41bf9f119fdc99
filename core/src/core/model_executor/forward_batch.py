"""`ForwardBatch`: the device tensors of one forward pass of one KV group. Owned by the worker."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.model_executor.forward_mode import ForwardMode


@dataclass(slots=True)
class ForwardBatch:
    """Device tensors of one forward pass, and the few host copies that a backend may have declared to read.

    The batches of several KV groups share every tensor but `out_cache_loc`.

    Attributes:
        forward_mode: kind of step.
        bs: rows.
        num_tokens: tokens of all rows.
        input_ids: `[num_tokens]` int64.
        positions: `[num_tokens]` int64, position of each token in its row.
        req_pool_indices: `[bs]` int64, rows of the page table.
        seq_lens: `[bs]` int32, tokens of each row, this step's included.
        out_cache_loc: `[num_tokens]` int64, slots of this step's tokens in the group's pool.
        extend_seq_lens: `[bs]` int32, new tokens a row; None in `DECODE`, where each has one.
        extend_prefix_lens: `[bs]` int32, tokens a row before this step; None in `DECODE`.
        qo_indptr: `[bs + 1]` int32, where each row's tokens start; None in `DECODE`.
        seq_lens_cpu: host twin of `seq_lens`, as plain ints; None unless the backend declared `needs_cpu_seq_lens`.
        extend_seq_lens_cpu: host twin of `extend_seq_lens`; likewise.
        extend_prefix_lens_cpu: host twin of `extend_prefix_lens`; likewise.
    """

    forward_mode: ForwardMode
    bs: int
    num_tokens: int
    input_ids: torch.Tensor
    positions: torch.Tensor
    req_pool_indices: torch.Tensor
    seq_lens: torch.Tensor
    out_cache_loc: torch.Tensor
    extend_seq_lens: torch.Tensor | None = None
    extend_prefix_lens: torch.Tensor | None = None
    qo_indptr: torch.Tensor | None = None
    seq_lens_cpu: list[int] | None = None
    extend_seq_lens_cpu: list[int] | None = None
    extend_prefix_lens_cpu: list[int] | None = None
