"""`EchoWorker`: a worker without a model that repeats each prompt, so that a test writes the output into the prompt."""

from __future__ import annotations

import time
from typing import final

from core.model_executor.worker import StepHandle, Worker, WorkerLimits
from core.model_executor.worker_batch import ModelWorkerBatch, StepOutput, TokenLogprobs


@final
class EchoWorker(Worker):
    """Draws a request's prompt, token by token, over and over. Picklable.

    The log-probability of token t is -t, and the likeliest tokens are 0, 1, 2 and so on.

    Args:
        vocab_size, max_context_len: as in `WorkerLimits`.
        max_total_tokens: tokens that the pool holds, in pages of one.
        max_rows: as in `WorkerLimits`.
        step_seconds: what a step takes.
        fail_at_step: the step, counted from 1, that raises `RuntimeError`.
    """

    def __init__(
        self,
        *,
        vocab_size: int = 300,
        max_context_len: int = 256,
        max_total_tokens: int = 4096,
        max_rows: int = 65,
        step_seconds: float = 0.0,
        fail_at_step: int | None = None,
    ) -> None:
        self._limits = WorkerLimits(
            num_pages=(max_total_tokens + 1,),
            page_size=1,
            max_rows=max_rows,
            max_context_len=max_context_len,
            vocab_size=vocab_size,
            launches_async=False,
        )
        self._step_seconds = step_seconds
        self._fail_at_step = fail_at_step
        self._prompts: dict[int, list[int]] = {}
        self._num_drawn: dict[int, int] = {}

    @property
    def limits(self) -> WorkerLimits:
        return self._limits

    def launch(self, batch: ModelWorkerBatch) -> StepHandle:
        if batch.step_id == self._fail_at_step:
            raise RuntimeError(f"step {batch.step_id} was told to fail")
        time.sleep(self._step_seconds)
        for start in batch.new_rows:
            self._prompts[start.row] = start.prompt_ids.tolist()
            self._num_drawn[start.row] = len(start.output_ids)
        token_ids: list[int] = []
        logprobs: dict[int, TokenLogprobs] = {}
        for index in range(batch.bs):
            if not batch.sample[index]:
                continue
            row = int(batch.req_pool_indices[index])
            prompt = self._prompts[row]
            token_ids.append(prompt[self._num_drawn[row] % len(prompt)])
            self._num_drawn[row] += 1
            if index in batch.logprobs:
                logprobs[index] = _scored(token_ids[-1], batch.logprobs[index])
        return _Done(StepOutput(batch.step_id, token_ids, logprobs, self._prompt_logprobs(batch)))

    def _prompt_logprobs(self, batch: ModelWorkerBatch) -> dict[int, list[TokenLogprobs]]:
        scored: dict[int, list[TokenLogprobs]] = {}
        for index, (num_top, _) in batch.prompt_logprobs.items():
            end = int(batch.seq_lens[index])
            start = end - int(batch.extend_seq_lens[index])
            successors = self._prompts[int(batch.req_pool_indices[index])][start + 1 : end + 1]
            scored[index] = [_scored(token, num_top) for token in successors]
        return scored


def _scored(token_id: int, num_top: int) -> TokenLogprobs:
    top = list(range(num_top))
    return TokenLogprobs(token_id, -float(token_id), top, [-float(token) for token in top])


@final
class _Done(StepHandle):
    def __init__(self, output: StepOutput) -> None:
        self._output = output

    def wait(self) -> StepOutput:
        return self._output
