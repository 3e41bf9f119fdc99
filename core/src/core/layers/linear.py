"""`Linear`: one matrix product in place of the several that a checkpoint stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import nn

from core.layers.matmul import MatMul, PlainMatMul, fastest_matmul
from core.layers.placement import Placement


@final
class Linear(nn.Module):
    """y = x W^T + b, where W and b may be several of the checkpoint's, one below the other.

    Args:
        in_features: size of x's last axis.
        parts: name in the checkpoint -> rows of W that it fills, in order.
        bias: whether each part has one.
        placement: of W and b.
    """

    def __init__(self, in_features: int, parts: Mapping[str, int], *, bias: bool, placement: Placement) -> None:
        super().__init__()
        self._parts = dict(parts)
        out_features = sum(self._parts.values())
        self.weight = placement.parameter(out_features, in_features)
        self.bias = placement.parameter(out_features) if bias else None
        self._matmul: MatMul = PlainMatMul(self.weight, self.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._matmul(x)

    def freeze(self) -> None:
        """As `CausalLM.freeze`."""
        self._matmul = fastest_matmul(self.weight, self.bias)
        del self.weight  # so that its memory is free if the product has a copy of its own

    def weight_targets(self, prefix: str) -> dict[str, torch.Tensor]:
        """As `CausalLM.weight_targets`; `prefix` ends in a dot."""
        targets = {}
        start = 0
        for name, rows in self._parts.items():
            targets[f"{prefix}{name}.weight"] = self.weight[start : start + rows]
            if self.bias is not None:
                targets[f"{prefix}{name}.bias"] = self.bias[start : start + rows]
            start += rows
        return targets
