"""`HistoryWorker`: a worker without a model, which makes the books of the scheduler checkable.

Its "cache" stores in each slot which token stands there and at which position. A token is drawn from a hash of the
row's whole history, read back through the page table: a page that was given to two owners, freed too early, shared
wrongly or never written changes the output or fails at once.
"""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt

from core.model_executor.worker import StepHandle, Worker, WorkerLimits
from core.model_executor.worker_batch import ModelWorkerBatch, StepOutput, TokenLogprobs


def next_token(history: list[int], seed: int, vocab_size: int) -> int:
    """The token that follows a history: any change of it changes the token."""
    return hash((seed, *history)) % vocab_size


@final
class HistoryWorker(Worker):
    """Runs each step at launch, and hands its tokens out when asked.

    Args:
        num_pages, page_size, max_rows, max_context_len, vocab_size: as in `WorkerLimits`.
    """

    def __init__(
        self,
        *,
        num_pages: int,
        page_size: int,
        max_rows: int,
        max_context_len: int,
        vocab_size: int = 1000,
        launches_async: bool = False,
    ) -> None:
        self._limits = WorkerLimits(
            num_pages=(num_pages,),
            page_size=page_size,
            max_rows=max_rows,
            max_context_len=max_context_len,
            vocab_size=vocab_size,
            launches_async=launches_async,
        )
        self._table = np.zeros((max_rows, -(-max_context_len // page_size)), np.int64)
        self._tokens = np.full(num_pages * page_size, -1, np.int64)
        self._positions = np.full(num_pages * page_size, -1, np.int64)
        self._last = np.zeros(max_rows, np.int64)
        self._seeds = np.zeros(max_rows, np.int64)
        self.num_computed_tokens = 0
        """Tokens of all steps: what the prefix cache saved is not among them."""

    @property
    def limits(self) -> WorkerLimits:
        return self._limits

    def launch(self, batch: ModelWorkerBatch) -> StepHandle:
        (update,) = batch.page_updates
        assert (update.page_ids > 0).all(), "page 0 is the dummy"
        self._table[update.rows, update.columns] = update.page_ids
        for start in batch.new_rows:
            assert start.params.seed is not None
            self._seeds[start.row] = start.params.seed
        self._write(batch)
        token_ids: list[int] = []
        logprobs: dict[int, TokenLogprobs] = {}
        for index in np.flatnonzero(batch.sample):
            row, seq_len = int(batch.req_pool_indices[index]), int(batch.seq_lens[index])
            token = next_token(self._history(row, seq_len), int(self._seeds[row]), self._limits.vocab_size)
            self._last[row] = token
            token_ids.append(token)
            if int(index) in batch.logprobs:
                logprobs[int(index)] = TokenLogprobs(token, -float(token), [], [])
        return _Done(StepOutput(batch.step_id, token_ids, logprobs))

    def _slots(self, row: int, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        page_size = self._limits.page_size
        slots: npt.NDArray[np.int64] = self._table[row, positions // page_size] * page_size + positions % page_size
        return slots

    def _write(self, batch: ModelWorkerBatch) -> None:
        """Write every row's new tokens before any row is read, as a layer of a model does."""
        assert len(set(batch.req_pool_indices.tolist())) == batch.bs, "a row takes part once a step"
        first = 0
        for index in range(batch.bs):
            row, seq_len = int(batch.req_pool_indices[index]), int(batch.seq_lens[index])
            num_new = int(batch.extend_seq_lens[index])
            positions = np.arange(seq_len - num_new, seq_len)
            slots = self._slots(row, positions)
            if index < batch.num_extends:
                self._tokens[slots] = batch.input_ids[first : first + num_new]
                first += num_new
            else:
                self._tokens[slots] = self._last[row]
            self._positions[slots] = positions
            self.num_computed_tokens += num_new
        assert first == len(batch.input_ids)

    def _history(self, row: int, seq_len: int) -> list[int]:
        positions = np.arange(seq_len)
        slots = self._slots(row, positions)
        assert (self._positions[slots] == positions).all(), "a slot holds a token of another place"
        history: list[int] = self._tokens[slots].tolist()
        return history


@final
class _Done(StepHandle):
    def __init__(self, output: StepOutput) -> None:
        self._output = output

    def wait(self) -> StepOutput:
        return self._output
