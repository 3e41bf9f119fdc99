"""`ModelRunner`: runs one step after the other on one device. It sees rows and tensors, never a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch

from core.model_executor.batch_builder import BatchBuilder, StepTensors
from core.model_executor.kv_group import KVGroup
from core.model_executor.step_handle import DeviceStep, LogprobRows
from core.model_executor.worker import Worker, WorkerLimits
from core.model_executor.worker_batch import ModelWorkerBatch
from core.models.causal_lm import CausalLM
from core.sampling.logprobs import gather_logprobs
from core.sampling.row_state import SamplingRows
from core.sampling.sampler import Sampler

PROMPT_LOGPROB_TOKENS = 256
"""Prompt tokens whose logits are held at once: `[256, vocab_size]` float32 is at most some hundred MB."""


@final
class ModelRunner(Worker):
    """Owns the device's state: the model, the KV groups, the row-resident tensors and the sampler."""

    def __init__(
        self,
        *,
        model: CausalLM,
        groups: Sequence[KVGroup],
        sampler: Sampler,
        limits: WorkerLimits,
        device: torch.device,
    ) -> None:
        self._model = model
        self._sampler = sampler
        self._limits = limits
        self._device = device
        self._builder = BatchBuilder(groups, limits.page_size, limits.max_rows, device)
        self._sampling_rows = SamplingRows(limits.max_rows, limits.vocab_size, device)

    @property
    def limits(self) -> WorkerLimits:
        return self._limits

    @torch.inference_mode()
    def launch(self, batch: ModelWorkerBatch) -> DeviceStep:
        if batch.new_rows:
            self._sampling_rows.init_rows(batch.new_rows)
        step = self._builder.build(batch)
        for group in step.groups:
            group.backend.init_forward_metadata(group.batch)
        hidden = self._model.forward(step.input_ids, step.positions, step.groups)
        prompt = self._prompt_logprobs(batch, step, hidden) if batch.prompt_logprobs else []
        if step.sample_hidden is not None:
            hidden = hidden[step.sample_hidden]
        token_ids, sampled = self._sample(batch, step, hidden)
        return DeviceStep(batch.step_id, token_ids, sampled, prompt)

    def _sample(
        self, batch: ModelWorkerBatch, step: StepTensors, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, list[LogprobRows]]:
        """Draw a token for each sampling row and keep it as that row's next input."""
        if not len(step.sample_rows_cpu):
            return step.sample_rows, []
        logits = self._model.compute_logits(hidden)
        # The batch counts all rows, the logits only those that draw.
        place = {int(index): i for i, index in enumerate(np.flatnonzero(batch.sample))} if _is_sparse(batch) else None
        asked = [(index, place[index] if place else index, num_top) for index, num_top in batch.logprobs.items()]
        # The sampler may overwrite the logits; log-probabilities are those of the model's own distribution.
        kept = logits[[at for _, at, _ in asked]] if asked else None
        below = [place[index] if place else index for index in batch.below_min_tokens]
        sampling = self._sampling_rows.batch(step.sample_rows_cpu, step.sample_rows, step.sample_positions, below)
        token_ids = self._sampler.sample(logits, sampling)
        self._builder.last_token_ids[step.sample_rows] = token_ids
        self._sampling_rows.record(step.sample_rows, token_ids)
        if kept is None:
            return token_ids, []
        chosen = token_ids[[at for _, at, _ in asked]]
        results = gather_logprobs(kept, chosen, max(num_top for _, _, num_top in asked))
        rows = [
            LogprobRows(index, num_top, chosen[i : i + 1], *(result[i : i + 1] for result in results))
            for i, (index, _, num_top) in enumerate(asked)
        ]
        return token_ids, rows

    def _prompt_logprobs(self, batch: ModelWorkerBatch, step: StepTensors, hidden: torch.Tensor) -> list[LogprobRows]:
        """Log-probabilities of the prompt tokens that follow the input tokens of the rows that asked for them."""
        ends = np.cumsum(batch.extend_seq_lens)
        result = []
        for index, (num_top, successor) in batch.prompt_logprobs.items():
            end = int(ends[index])
            start = end - int(batch.extend_seq_lens[index])
            targets = step.input_ids[start + 1 : end]
            if successor >= 0:
                targets = torch.cat([targets, targets.new_tensor([successor])])
            pieces = []
            for first in range(0, len(targets), PROMPT_LOGPROB_TOKENS):
                piece = targets[first : first + PROMPT_LOGPROB_TOKENS]
                logits = self._model.compute_logits(hidden[start + first : start + first + len(piece)])
                pieces.append(gather_logprobs(logits, piece, num_top))
            if pieces:
                merged = [torch.cat(parts) for parts in zip(*pieces, strict=True)]
                result.append(LogprobRows(index, num_top, targets, *merged))
        return result


def _is_sparse(batch: ModelWorkerBatch) -> bool:
    """Whether some rows draw nothing, so that indices of sampling rows differ from those of the batch."""
    return bool((batch.logprobs or batch.below_min_tokens) and not batch.sample.all())
