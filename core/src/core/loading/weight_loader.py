"""`WeightLoader`: the interface that reads a model's configuration, tokenizer and weights from its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from transformers import PretrainedConfig, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class WeightLoaderContext:
    """`path` is the local folder or file of the model."""

    path: Path
    options: BaseModel


class WeightLoader(ABC):
    """Reads one model. Each method may be called in another process than the others, so each opens what it needs."""

    def __init__(self, context: WeightLoaderContext) -> None:
        self.context = context

    @abstractmethod
    def load_config(self) -> PretrainedConfig:
        """The model's configuration. Cheap: reads no weights."""

    @abstractmethod
    def load_generation_config(self) -> dict[str, Any]:
        """Defaults for sampling, in the keys of `generation_config.json`; empty if the model brings none."""

    @abstractmethod
    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer, with its chat template if it has one. `ModelError` if there is none."""

    @abstractmethod
    def iter_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every tensor once, as (name in transformers' spelling, tensor on the CPU in a float dtype).

        A tensor is valid until the next step of the iterator. Raises `ModelError` by name for a file that is missing.
        """
