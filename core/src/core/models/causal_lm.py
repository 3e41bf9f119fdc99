"""`CausalLM`: what the runner needs of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import final

import torch
from torch import nn

from core.attention.radix_attention import GroupForward
from core.errors import ModelError


class CausalLM(nn.Module, ABC):
    """A decoder-only model. Its weights are all that it holds; the memory of a request is in the KV groups."""

    @abstractmethod
    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, groups: tuple[GroupForward, ...]
    ) -> torch.Tensor:
        """Run all tokens of a step. Mutates the groups' pools: this step's keys and values are written to them.

        Args:
            input_ids: `[num_tokens]` int64.
            positions: `[num_tokens]` int64, below the context length that the model was made for.
            groups: one for each KV group, their metadata initialised.

        Returns:
            `[num_tokens, hidden_size]` in the model's dtype, after the last norm.
        """

    @abstractmethod
    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """`[n, vocab_size]` float32 logits of `[n, hidden_size]`; a fresh tensor."""

    @abstractmethod
    def weight_targets(self) -> dict[str, torch.Tensor]:
        """Name in a checkpoint, in transformers' spelling -> the tensor, or view of one, that it fills.

        Together they cover every parameter, each element once. They share the parameters' memory.
        """

    def is_redundant(self, name: str) -> bool:
        """Whether a checkpoint may hold a tensor of that name although the model computes it or has it elsewhere."""
        return name.endswith("rotary_emb.inv_freq")

    def freeze(self) -> None:
        """Bring the weights into the form that is fastest to compute with, once they are loaded.

        `weight_targets` is void from then on. By default they stay as they are.
        """

    @final
    @torch.no_grad()
    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Fill every parameter, converting to its dtype on the way to its device; holds one tensor at a time.

        Args:
            weights: (name in transformers' spelling, tensor).

        Raises:
            ModelError: tensors are missing, unexpected, there twice, or of another shape; the message names them. The
                parameters' content is then undefined.
        """
        targets = self.weight_targets()
        loaded: set[str] = set()
        unexpected: list[str] = []
        for name, tensor in weights:
            target = targets.get(name)
            if target is None:
                if not self.is_redundant(name):
                    unexpected.append(name)
                continue
            if target.shape != tensor.shape:
                raise ModelError(
                    f"The weight {name} has the shape {list(tensor.shape)}, the configuration asks for "
                    f"{list(target.shape)}; config.json and the weights are not of the same model"
                )
            if name in loaded:
                raise ModelError(f"The weight {name} is there twice; leave one file out, or fetch the model again")
            target.copy_(tensor)
            loaded.add(name)
        missing = [name for name in targets if name not in loaded]
        problems = [f"{len(missing)} missing ({_some(missing)})"] if missing else []
        problems += [f"{len(unexpected)} unexpected ({_some(unexpected)})"] if unexpected else []
        if problems:
            raise ModelError(
                f"The weights do not fit the configuration, which asks for {len(targets)} tensors: "
                f"{', '.join(problems)}; config.json and the weights are not of the same model, or a file is lacking"
            )


def _some(names: list[str], most: int = 6) -> str:
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])
