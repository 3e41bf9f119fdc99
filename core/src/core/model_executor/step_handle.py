"""`DeviceStep`: a launched step whose results are on their way to the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from core.model_executor.worker import StepHandle
from core.model_executor.worker_batch import StepOutput, TokenLogprobs


@dataclass(frozen=True, slots=True)
class LogprobRows:
    """Device results of `gather_logprobs` for some tokens, and whose they are.

    Attributes:
        index: index in the batch of the row that they belong to.
        num_top: how many of the likeliest were asked for; `top_*` may have more columns.
        token_ids: `[n]` int64.
        logprobs: `[n]` float32.
        top_ids: `[n, k]` int64.
        top_logprobs: `[n, k]` float32.
    """

    index: int
    num_top: int
    token_ids: torch.Tensor
    logprobs: torch.Tensor
    top_ids: torch.Tensor
    top_logprobs: torch.Tensor

    def to_host(self) -> list[TokenLogprobs]:
        top_ids = self.top_ids[:, : self.num_top].tolist()
        top_logprobs = self.top_logprobs[:, : self.num_top].tolist()
        rows = zip(self.token_ids.tolist(), self.logprobs.tolist(), top_ids, top_logprobs, strict=True)
        return [TokenLogprobs(*row) for row in rows]


@final
class DeviceStep(StepHandle):
    """Starts the copy of the drawn tokens to pinned memory behind an event; `wait` waits for that event alone."""

    def __init__(
        self, step_id: int, token_ids: torch.Tensor, sampled: list[LogprobRows], prompt: list[LogprobRows]
    ) -> None:
        self._step_id = step_id
        self._sampled = sampled
        self._prompt = prompt
        self._event: torch.cuda.Event | None = None
        self._token_ids_cpu = token_ids
        if token_ids.device.type == "cuda":
            self._token_ids_cpu = torch.empty_like(token_ids, device="cpu", pin_memory=True)
            self._token_ids_cpu.copy_(token_ids, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def wait(self) -> StepOutput:
        if self._event is not None:
            self._event.synchronize()
        return StepOutput(
            step_id=self._step_id,
            token_ids=self._token_ids_cpu.tolist(),
            logprobs={rows.index: rows.to_host()[0] for rows in self._sampled},
            prompt_logprobs={rows.index: rows.to_host() for rows in self._prompt},
        )
