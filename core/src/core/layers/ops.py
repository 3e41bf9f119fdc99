"""`LayerOps`: the small operations between a model's matrix products, behind one seam.

The plain torch version is the reference and the CPU path; a version that fuses them for a device implements the same
methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """RMS norms of each query head and each key head: `[head_dim]` weights, and the epsilon."""

    q_weight: torch.Tensor
    k_weight: torch.Tensor
    eps: float


class LayerOps(ABC):
    """Operations on `[num_tokens, ...]` activations. Results are in the dtype of the input; nothing is mutated."""

    @abstractmethod
    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang and Sennrich, 2019); the mean in float32.

        Args:
            x: `[num_tokens, n]`.
            weight: `[n]`.
        """

    @abstractmethod
    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(rms_norm(x + residual), x + residual): the end of one half of a layer and the start of the next."""

    @abstractmethod
    def rotate_qkv(
        self,
        qkv: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        cos: torch.Tensor,
        sin: torch.Tensor,
        norms: HeadNorms | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Split a merged projection into heads; normalise query and key heads if asked, and rotate them.

        Args:
            qkv: `[num_tokens, (num_qo_heads + 2 * num_kv_heads) * head_dim]`, rows contiguous.
            cos: `[num_tokens, 1, head_dim]`, both halves the same.
            sin: `[num_tokens, 1, head_dim]`, the first half negated: channel i of a head is paired with i +
                head_dim / 2, and head * cos + swapped halves * sin rotates the pair.
            norms: of the heads, applied before they are rotated, or None.

        Returns:
            q `[num_tokens, num_qo_heads, head_dim]`, k and v `[num_tokens, num_kv_heads, head_dim]`. Their last two
            axes are contiguous, the first may be strided; v may be a view of `qkv`.
        """

    @abstractmethod
    def silu_and_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """silu(first half) * second half of the last axis: `[num_tokens, 2 * n]` to `[num_tokens, n]`."""


_FEW_TOKENS = 32
"""Tokens up to which the number of calls counts for more than the work in them, on a CPU (measured)."""


@final
class TorchLayerOps(LayerOps):
    """Plain torch, in as few calls as possible: on a CPU each costs a microsecond or more, whatever its size."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        if x.device.type == "cpu" and x.shape[0] <= _FEW_TOKENS:
            return _rms_norm_of_few(x, eps) * weight
        return F.rms_norm(x, weight.shape, weight, eps)

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        return self.rms_norm(total, weight, eps), total

    def rotate_qkv(
        self,
        qkv: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        cos: torch.Tensor,
        sin: torch.Tensor,
        norms: HeadNorms | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        head_dim = cos.shape[-1]
        heads = qkv.view(qkv.shape[0], -1, head_dim)
        qk, v = heads.tensor_split((num_qo_heads + num_kv_heads,), 1)
        if norms is not None:
            qk = F.rms_norm(qk, (head_dim,), None, norms.eps)
            q, k = qk.tensor_split((num_qo_heads,), 1)
            q *= norms.q_weight
            k *= norms.k_weight
        # Rolling by half a head swaps its halves; the signs are in `sin`.
        rotated = torch.addcmul(qk * cos, qk.roll(head_dim // 2, -1), sin)
        q, k = rotated.tensor_split((num_qo_heads,), 1)
        return q, k, v

    def silu_and_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate) * up


def _rms_norm_of_few(x: torch.Tensor, eps: float) -> torch.Tensor:
    """RMS norm without weight, as the layer norm of (x, -x), whose mean is 0 and whose variance is x's mean square.

    Torch has a kernel for the one, and makes the other from ten small ones.
    """
    return F.layer_norm(torch.cat([x, -x], -1), (2 * x.shape[-1],), None, None, eps)[..., : x.shape[-1]]
