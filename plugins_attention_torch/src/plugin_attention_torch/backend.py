"""`TorchAttentionBackend`: attention over paged memory in plain PyTorch, on any device."""

from __future__ import annotations

from itertools import accumulate
from typing import final

import torch

from core import AttentionBackend, BackendContext, ForwardBatch, RadixAttention

from .decode import Decode, DecodePlan
from .extend import Extend, ExtendRow
from .paged_kv import PagedKV
from .products import Products


@final
class TorchAttentionBackend(AttentionBackend):
    """Gathers each row's keys and values from its pages and attends with torch's own kernels.

    What layers share (which slots to gather, masks) is made once a step, from host lengths for shapes and from device
    tensors for content. Rows with one new token, also those of a mixed step, go through `Decode`, the others through
    `Extend`.
    """

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        products = Products(context)
        kv = PagedKV(context, products.dtype)
        self._decode = Decode(context, kv, products)
        self._extend = Extend(context, kv, products)
        self._v_head_dim = context.geometry.v_head_dim
        self._decode_plan: DecodePlan | None = None
        self._extend_rows: list[ExtendRow] = []
        self._all_planned = True

    def init_forward_metadata(self, batch: ForwardBatch) -> None:
        assert batch.seq_lens_cpu is not None, "declared needs_cpu_seq_lens"
        num_new = batch.extend_seq_lens_cpu or [1] * batch.bs
        singles: list[int] = []
        starts = list(accumulate(num_new, initial=0))
        self._extend_rows = []
        for row, seq_len in enumerate(batch.seq_lens_cpu):
            if seq_len > 0 and num_new[row] == 1:
                singles.append(row)
            elif seq_len > 0 and num_new[row] > 1:
                self._extend_rows.append(self._extend.plan_row(batch, row, starts[row], num_new[row], seq_len))
        self._decode_plan = self._decode.plan(batch, singles, [starts[row] for row in singles])
        num_planned = len(singles) + sum(row.stop - row.start for row in self._extend_rows)
        self._all_planned = num_planned == batch.num_tokens

    def forward_decode(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: RadixAttention, batch: ForwardBatch
    ) -> torch.Tensor:
        assert self._decode_plan is not None, "init_forward_metadata comes first"
        if self._decode_plan.tokens is None:
            return self._decode.forward_chunk(self._decode_plan.chunks[0], q, layer.layer_id, layer.sinks)
        out = self._new_output(q)
        self._decode.forward(self._decode_plan, q, out, layer.layer_id, layer.sinks)
        return out

    def forward_extend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: RadixAttention, batch: ForwardBatch
    ) -> torch.Tensor:
        if not self._extend_rows:
            return self.forward_decode(q, k, v, layer, batch)
        assert self._decode_plan is not None
        out = self._new_output(q)
        for row in self._extend_rows:
            self._extend.forward(row, q, k, v, out, layer.layer_id, layer.sinks)
        self._decode.forward(self._decode_plan, q, out, layer.layer_id, layer.sinks)
        return out

    def _new_output(self, q: torch.Tensor) -> torch.Tensor:
        shape = (q.shape[0], q.shape[1], self._v_head_dim)
        # Rows of length 0 have no plan: their output is what it is made with.
        return q.new_empty(shape) if self._all_planned else q.new_zeros(shape)
