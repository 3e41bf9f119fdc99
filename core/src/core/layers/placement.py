"""`Placement`: where a model's parameters live, and in which dtype."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Placement:
    """Dtype and device of every parameter of a model."""

    dtype: torch.dtype
    device: torch.device

    def parameter(self, *shape: int) -> nn.Parameter:
        """A parameter without gradient, made on the device; its content is undefined until the weights are loaded."""
        return nn.Parameter(torch.empty(shape, dtype=self.dtype, device=self.device), requires_grad=False)
