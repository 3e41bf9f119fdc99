"""`WeightLoader`: the interface that reads a model's configuration, tokenizer and weights from its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel
from transformers import PretrainedConfig, PreTrainedTokenizerBase

if TYPE_CHECKING:
    from core.models.causal_lm import CausalLM


@dataclass(frozen=True, slots=True)
class WeightLoaderContext:
    """What a loader is made from.

    Attributes:
        path: the local folder or file of the model.
        options: an instance of the spec's options model.
        seed: for a loader that draws weights instead of reading them.
    """

    path: Path
    options: BaseModel
    seed: int = 0


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
        """Every tensor that the files hold, once, as (name in transformers' spelling, CPU tensor in a float dtype).

        A tensor is valid until the next step of the iterator. Raises `ModelError` by name for a file that is missing.
        """

    def load_into(self, model: CausalLM) -> None:
        """Fill every parameter of `model`, on its device. Raises `ModelError` if the weights do not fit it.

        A loader with a faster way to the device than one CPU tensor at a time overrides it.
        """
        model.load_weights(self.iter_weights())
