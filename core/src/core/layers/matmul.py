"""`MatMul`: y = x W^T + b with a weight in whatever form the device multiplies fastest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import torch
from torch.nn import functional as F

_ONEDNN_DTYPES: dict[torch.dtype, Callable[[], bool]] = {
    torch.float32: lambda: True,
    torch.bfloat16: lambda: bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    torch.float16: lambda: bool(torch.ops.mkldnn._is_mkldnn_fp16_supported()),
}


class MatMul(ABC):
    """Holds a weight `[out_features, in_features]` and a bias `[out_features]` or None; constant."""

    @abstractmethod
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, in_features]` to `[n, out_features]`, a fresh tensor in x's dtype."""


@final
class PlainMatMul(MatMul):
    """The weight as it is: it may still be written to."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self._weight, self._bias)


@final
class OneDnnMatMul(MatMul):
    """A copy of the weight in oneDNN's own tiling, made once.

    A plain product reads a row-major weight, or reorders it at each call. With few tokens the reading is all that
    counts, and tiles stream at the memory's rate: two to three times faster in float32, a third in bfloat16. The
    operators are those that torch.compile lowers frozen linear layers to.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, 1)
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return out


def fastest_matmul(weight: torch.Tensor, bias: torch.Tensor | None) -> MatMul:
    """The product to use once the weight is final; the caller may drop its own reference to it."""
    packs = _ONEDNN_DTYPES.get(weight.dtype) if torch.backends.mkldnn.is_available() else None  # type: ignore[no-untyped-call]
    if weight.device.type == "cpu" and packs is not None and packs():
        return OneDnnMatMul(weight, bias)
    return PlainMatMul(weight, bias)
