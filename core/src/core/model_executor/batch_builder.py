"""Turns a `ModelWorkerBatch` into the device tensors of one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from core.attention.radix_attention import GroupForward
from core.model_executor.forward_batch import ForwardBatch
from core.model_executor.kv_group import KVGroup
from core.model_executor.upload import upload
from core.model_executor.worker_batch import ModelWorkerBatch


@dataclass(frozen=True, slots=True)
class StepTensors:
    """Device tensors of one step.

    Attributes:
        input_ids: `[num_tokens]` int64.
        positions: `[num_tokens]` int64.
        groups: one for each KV group; their batches' metadata is not yet initialised.
        sample_rows: `[n]` int64, rows that draw a token.
        sample_rows_cpu: host twin.
        sample_hidden: `[n]` int64, index of each one's last token in the pass; None where every token is one.
        sample_positions: `[n]` int64, index in its row of the token to be drawn.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    groups: tuple[GroupForward, ...]
    sample_rows: torch.Tensor
    sample_rows_cpu: np.ndarray[tuple[int], np.dtype[np.int32]]
    sample_hidden: torch.Tensor | None
    sample_positions: torch.Tensor


class BatchBuilder:
    """Holds what is needed to build a step: the row-resident last tokens, and the KV groups."""

    def __init__(self, groups: Sequence[KVGroup], page_size: int, max_rows: int, device: torch.device) -> None:
        self._groups = tuple(groups)
        self._page_size = page_size
        self._device = device
        self.last_token_ids = torch.zeros(max_rows, dtype=torch.int64, device=device)
        """`[max_rows]` int64: the token that each row drew last; a decode step's input. Written by the runner."""

    def build(self, batch: ModelWorkerBatch) -> StepTensors:
        """Apply the page updates, and build the tensors of one step. Launches work, waits for nothing."""
        for group, update in zip(self._groups, batch.page_updates, strict=True):
            group.page_table.apply(update)
        if batch.forward_mode.is_decode():
            return self._build_decode(batch)
        return self._build_extend(batch)

    def _build_decode(self, batch: ModelWorkerBatch) -> StepTensors:
        rows32, seq_lens = upload([batch.req_pool_indices, batch.seq_lens], self._device)
        rows = rows32.long()
        sample_positions = seq_lens.long()
        positions = sample_positions - 1
        input_ids = self.last_token_ids[rows]
        forward = ForwardBatch(
            forward_mode=batch.forward_mode,
            bs=batch.bs,
            num_tokens=batch.bs,
            input_ids=input_ids,
            positions=positions,
            req_pool_indices=rows,
            seq_lens=seq_lens,
            out_cache_loc=rows,  # each group sets its own
        )
        groups = self._with_groups(batch, forward, rows, decode=True)
        return StepTensors(input_ids, positions, groups, rows, batch.req_pool_indices, None, sample_positions)

    def _build_extend(self, batch: ModelWorkerBatch) -> StepTensors:
        extend_lens, seq_lens_cpu = batch.extend_seq_lens, batch.seq_lens
        prefix_lens = seq_lens_cpu - extend_lens
        indptr = np.zeros(batch.bs + 1, np.int32)
        np.cumsum(extend_lens, out=indptr[1:])
        num_tokens = int(indptr[-1])
        # Token t of the pass is at position t - (start of its row's tokens) + (its row's prefix).
        positions_cpu = np.arange(num_tokens, dtype=np.int32) + np.repeat(prefix_lens - indptr[:-1], extend_lens)
        token_rows_cpu = np.repeat(batch.req_pool_indices, extend_lens)
        sample_cpu = np.flatnonzero(batch.sample)
        rows32, seq_lens, extends, prefixes, qo_indptr, positions32, token_rows, host_ids, ends, drawn, drawn_at = (
            upload(
                [
                    batch.req_pool_indices,
                    seq_lens_cpu,
                    extend_lens,
                    prefix_lens,
                    indptr,
                    positions_cpu,
                    token_rows_cpu,
                    batch.input_ids,
                    indptr[1:][sample_cpu] - 1,
                    batch.req_pool_indices[sample_cpu],
                    seq_lens_cpu[sample_cpu],
                ],
                self._device,
            )
        )
        rows = rows32.long()
        positions = positions32.long()
        input_ids = host_ids.long()
        if batch.num_extends < batch.bs:
            input_ids = torch.cat([input_ids, self.last_token_ids[rows[batch.num_extends :]]])
        forward = ForwardBatch(
            forward_mode=batch.forward_mode,
            bs=batch.bs,
            num_tokens=num_tokens,
            input_ids=input_ids,
            positions=positions,
            req_pool_indices=rows,
            seq_lens=seq_lens,
            out_cache_loc=rows,  # each group sets its own
            extend_seq_lens=extends,
            extend_prefix_lens=prefixes,
            qo_indptr=qo_indptr,
        )
        groups = self._with_groups(batch, forward, token_rows.long(), decode=False)
        return StepTensors(
            input_ids,
            positions,
            groups,
            drawn.long(),
            batch.req_pool_indices[sample_cpu],
            ends.long(),
            drawn_at.long(),
        )

    def _with_groups(
        self, batch: ModelWorkerBatch, forward: ForwardBatch, token_rows: torch.Tensor, *, decode: bool
    ) -> tuple[GroupForward, ...]:
        """One `GroupForward` for each KV group: the shared tensors, the group's slots, and the declared host copies."""
        result = []
        for group in self._groups:
            backend = group.decode_backend if decode else group.extend_backend
            needs_cpu = group.decode_needs_cpu_seq_lens if decode else group.extend_needs_cpu_seq_lens
            own = ForwardBatch(
                forward_mode=forward.forward_mode,
                bs=forward.bs,
                num_tokens=forward.num_tokens,
                input_ids=forward.input_ids,
                positions=forward.positions,
                req_pool_indices=forward.req_pool_indices,
                seq_lens=forward.seq_lens,
                out_cache_loc=group.page_table.slots(token_rows, forward.positions, self._page_size),
                extend_seq_lens=forward.extend_seq_lens,
                extend_prefix_lens=forward.extend_prefix_lens,
                qo_indptr=forward.qo_indptr,
            )
            if needs_cpu:
                own.seq_lens_cpu = batch.seq_lens.tolist()
                if not decode:
                    own.extend_seq_lens_cpu = batch.extend_seq_lens.tolist()
                    own.extend_prefix_lens_cpu = (batch.seq_lens - batch.extend_seq_lens).tolist()
            result.append(GroupForward(backend, group.pool, own))
        return tuple(result)
