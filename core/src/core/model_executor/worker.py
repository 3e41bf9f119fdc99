"""`Worker`: what the engine loop needs of whoever runs the model. Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from core.model_executor.worker_batch import ModelWorkerBatch, StepOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """What the worker has room for; fixed once it is loaded.

    Attributes:
        num_pages: pages of each KV group, the dummy page 0 included.
        page_size: tokens a page.
        max_rows: rows of the page table, the dummy row 0 included.
        max_context_len: most tokens of a row.
        vocab_size: ids run from 0 below this.
        launches_async: `launch` returns before the device has done the work, so that overlapping pays.
    """

    num_pages: tuple[int, ...]
    page_size: int
    max_rows: int
    max_context_len: int
    vocab_size: int
    launches_async: bool


class StepHandle(ABC):
    """A launched step."""

    @abstractmethod
    def wait(self) -> StepOutput:
        """Wait until the step's tokens are on the host. The only place where the host waits for the device."""


class Worker(ABC):
    """Runs the model. Steps take effect in the order of their launches."""

    @property
    @abstractmethod
    def limits(self) -> WorkerLimits:
        """What there is room for; constant."""

    @abstractmethod
    def launch(self, batch: ModelWorkerBatch) -> StepHandle:
        """Start one step. May return before it has run; never waits for a token's value."""
