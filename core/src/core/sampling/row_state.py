"""`SamplingRows`: what sampling keeps of every running row, on the device and in a host twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt
import torch

from core.sampling.batch import SamplingBatch
from core.sampling.row_table import RowFlag, columns, flags_of, neutral_rows, pack_rows, words
from core.sampling.rows import RowInit

_NO_IDS = np.empty(0, np.int64)


@final
class SamplingRows:
    """The sampling parameters of every row, indexed by row.

    The host writes a row once, when it starts. Afterwards a step uploads nothing but the ids that rows below their
    `min_tokens` may not draw yet. Flags are taken from the host twin, so that nothing ever waits for the device.
    Everything is launched on the current stream, in the order of the calls.

    The three tensors of `[max_rows, vocab_size]` exist from the first row on that needs them.
    """

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        """`max_rows` counts the dummy row 0, which is greedy."""
        self._vocab_size = vocab_size
        self._device = device
        self._table_cpu = neutral_rows(max_rows, vocab_size)
        self._flags_cpu = np.zeros(max_rows, np.uint8)
        self._ending_ids_cpu = [_NO_IDS] * max_rows
        self._greedy = torch.from_numpy(words(self._table_cpu).copy()).to(device)
        """Rows that change nothing, never written: what an all-greedy batch is made of, without a gather."""
        self._table = self._greedy.clone()
        self._prompt_mask: torch.Tensor | None = None
        self._output_counts: torch.Tensor | None = None
        self._logit_bias: torch.Tensor | None = None

    def init_rows(self, rows: Sequence[RowInit]) -> None:
        """Give rows their parameters, and forget what their former requests left. Each row occurs once in `rows`.

        A call costs a few device operations, however many rows it starts.
        """
        if not rows:
            return
        index = np.array([row.row for row in rows], np.int64)
        table = pack_rows([row.params for row in rows], self._vocab_size)
        has_bias = np.array([bool(row.params.logit_bias) for row in rows], np.bool_)
        flags = flags_of(table, has_bias, self._vocab_size)
        had_bias = (self._flags_cpu[index] & RowFlag.BIAS) != 0
        self._table_cpu[index] = table
        self._flags_cpu[index] = flags
        for row in rows:
            self._ending_ids_cpu[row.row] = _ending_ids(row)
        index_words = index.view(np.int32).reshape(-1, 2)
        packed = self._upload(np.concatenate([index_words, words(table)], axis=1))
        self._table.index_copy_(0, packed[:, :2].view(torch.int64).squeeze(1), packed[:, 2:])
        has_penalty = (flags & RowFlag.PENALTY) != 0
        if has_penalty.any():
            self._init_counts([row for row, has in zip(rows, has_penalty, strict=True) if has])
        if (had_bias | has_bias).any():
            self._init_bias(index[had_bias | has_bias], [row for row in rows if row.params.logit_bias])

    def batch(
        self,
        rows_cpu: npt.NDArray[np.int32],
        rows: torch.Tensor,
        positions: torch.Tensor,
        below_min_tokens: Sequence[int] = (),
    ) -> SamplingBatch:
        """The rows that draw a token in this step.

        Args:
            rows_cpu: `[n]`, host twin of `rows`.
            rows: `[n]` int64 on the device.
            positions: `[n]` int64 on the device: of each row, the index of the token to be drawn.
            below_min_tokens: indices in `rows` of those that must not end yet.

        Returns:
            Tensors of `[n, ...]`, valid until the next `init_rows`; nobody may write to them. Mutates nothing.
        """
        flags = self._flags_cpu[rows_cpu]
        some = RowFlag(int(np.bitwise_or.reduce(flags)))
        random = (flags & RowFlag.RANDOM) != 0
        all_greedy, any_penalty = not random.any(), RowFlag.PENALTY in some
        packed = self._greedy[: len(rows_cpu)] if all_greedy and not any_penalty else self._table[rows]
        column = columns(packed)
        batch = SamplingBatch(
            temperature=column["temperature"],
            top_k=column["top_k"],
            top_p=column["top_p"],
            min_p=column["min_p"],
            seeds=column["seed"],
            positions=positions,
            repetition_penalty=column["repetition_penalty"],
            frequency_penalty=column["frequency_penalty"],
            presence_penalty=column["presence_penalty"],
            banned=self._banned(rows_cpu, below_min_tokens),
            all_greedy=all_greedy,
            any_greedy=not random.all(),
            any_top_k=RowFlag.TOP_K in some,
            any_top_p=RowFlag.TOP_P in some,
            any_min_p=RowFlag.MIN_P in some,
            any_penalty=any_penalty,
        )
        if not all_greedy:
            batch.max_top_k = int(self._table_cpu["top_k"][rows_cpu[random]].max())
        if any_penalty:
            assert self._prompt_mask is not None, "allocated with the first penalty"
            assert self._output_counts is not None, "allocated with the first penalty"
            batch.prompt_mask = self._prompt_mask[rows]
            batch.output_counts = self._output_counts[rows]
        if RowFlag.BIAS in some:
            assert self._logit_bias is not None, "allocated with the first bias"
            batch.logit_bias = self._logit_bias[rows]
        return batch

    def record(self, rows: torch.Tensor, token_ids: torch.Tensor) -> None:
        """Count the drawn tokens: `rows` and `token_ids` are `[n]` int64 on the device, each row once.

        Also rows without a penalty are counted, once another has one; their counts are reset before they matter.
        """
        if self._output_counts is not None:
            places = rows * self._vocab_size + token_ids
            self._output_counts.view(-1).index_add_(0, places, torch.ones_like(places, dtype=torch.int32))

    def _banned(
        self, rows_cpu: npt.NDArray[np.int32], below_min_tokens: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """(index in the batch, token id) of what must not be drawn yet, or None."""
        pairs = [(index, self._ending_ids_cpu[rows_cpu[index]]) for index in below_min_tokens]
        lengths = [len(ids) for _, ids in pairs]
        if not sum(lengths):
            return None
        indices = np.repeat([index for index, _ in pairs], lengths)
        uploaded = self._upload(np.stack([indices, np.concatenate([ids for _, ids in pairs])]))
        return uploaded[0], uploaded[1]

    def _init_counts(self, rows: Sequence[RowInit]) -> None:
        """Reset and fill the token counts of rows that have a penalty."""
        if self._prompt_mask is None or self._output_counts is None:
            shape = (len(self._flags_cpu), self._vocab_size)
            self._prompt_mask = torch.zeros(shape, dtype=torch.bool, device=self._device)
            self._output_counts = torch.zeros(shape, dtype=torch.int32, device=self._device)
        index = np.array([row.row for row in rows], np.int64)
        prompts = [np.unique(row.prompt_ids).astype(np.int64) + row.row * self._vocab_size for row in rows]
        outputs = [row.output_ids.astype(np.int64) + row.row * self._vocab_size for row in rows]
        parts = [index, np.concatenate(prompts), np.concatenate(outputs)]
        uploaded = self._upload(np.concatenate(parts))
        at, prompt_at, output_at = torch.split(uploaded, [len(part) for part in parts])
        self._prompt_mask.index_fill_(0, at, False)
        self._output_counts.index_fill_(0, at, 0)
        self._prompt_mask.view(-1).index_fill_(0, prompt_at, True)
        self._output_counts.view(-1).index_add_(0, output_at, torch.ones_like(output_at, dtype=torch.int32))

    def _init_bias(self, cleared: npt.NDArray[np.int64], biased: Sequence[RowInit]) -> None:
        """Zero the bias of some rows, then set that of those that have one."""
        if self._logit_bias is None:
            shape = (len(self._flags_cpu), self._vocab_size)
            self._logit_bias = torch.zeros(shape, dtype=torch.float32, device=self._device)
        self._logit_bias.index_fill_(0, self._upload(cleared), 0.0)
        if biased:
            places = [row.row * self._vocab_size + token for row in biased for token in row.params.logit_bias]
            values = [value for row in biased for value in row.params.logit_bias.values()]
            at, value = self._upload(np.array(places, np.int64)), self._upload(np.array(values, np.float32))
            self._logit_bias.view(-1).index_copy_(0, at, value)

    def _upload(self, array: npt.NDArray[np.generic]) -> torch.Tensor:
        """Copy to the device without waiting; torch's host allocator keeps the pinned copy until it was read."""
        staged = torch.from_numpy(array)
        return staged if self._device.type == "cpu" else staged.pin_memory().to(self._device, non_blocking=True)


def _ending_ids(row: RowInit) -> npt.NDArray[np.int64]:
    """The ids that would end the request; of none, where it may end at once."""
    if row.params.min_tokens == 0:
        return _NO_IDS
    eos_token_ids = () if row.params.ignore_eos else row.eos_token_ids
    return np.unique(np.array([*eos_token_ids, *row.params.stop_token_ids], np.int64))
