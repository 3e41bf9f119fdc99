"""Attention over gathered keys and values: torch's fused kernel, or its two matrix products one by one."""

from __future__ import annotations

from typing import final

import torch
from torch.nn import functional as F

from core import BackendContext

MANY_KEYS = 3072
"""Keys, over all rows and KV heads of a call, from which these pay (measured): contiguous heads for any product, and on
the CPU two bfloat16 products instead of the fused kernel."""


@final
class Products:
    """softmax(scale * q @ k^T + mask) @ v for grouped queries, with soft cap and sinks.

    Torch's fused kernel does neither soft cap nor sinks. On a CPU without bfloat16 tiles it also runs bfloat16 at
    float32's speed, while oneDNN's bfloat16 products run at twice to three times that: for many short queries the
    products are taken one by one there, with scores in bfloat16 and softmax in float32, like an eager model.

    Attributes:
        dtype: to compute in: that of the queries, or float32 where the device is slower in it. Arguments and results
            have it.
    """

    def __init__(self, context: BackendContext) -> None:
        geometry = context.geometry
        self._num_kv_heads = geometry.num_kv_heads
        self._group = geometry.num_qo_heads // geometry.num_kv_heads
        self._scale = geometry.scale
        self._soft_cap = geometry.soft_cap
        on_cpu = context.device.type == "cpu"
        self._prefer_gemm = on_cpu and context.dtype is torch.bfloat16 and _has_fast_bfloat16()
        self.dtype = context.dtype if self._prefer_gemm or not on_cpu else torch.float32

    def one_query_a_row(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, sinks: torch.Tensor | None
    ) -> torch.Tensor:
        """Attention of n rows with one query each.

        The query heads of a group stand in for the queries of a longer row, so that keys and values are never
        repeated.

        Args:
            q: `[n, num_qo_heads, head_dim]`.
            k: `[n, num_kv_heads, num_keys, head_dim]`.
            v: `[n, num_kv_heads, num_keys, v_head_dim]`.
            mask: `[n, num_keys]`, 0 or -inf.
            sinks: `[num_qo_heads]`, or None.

        Returns:
            `[n, num_qo_heads, v_head_dim]`; each row must see a key.
        """
        n = q.shape[0]
        grouped = q.view(n, self._num_kv_heads, self._group, -1)
        many = self._prefer_gemm and k.shape[0] * k.shape[1] * k.shape[2] >= MANY_KEYS
        if many or self._soft_cap is not None or sinks is not None:
            out = self._one_by_one(grouped.unsqueeze(3), k, v, mask.view(n, 1, 1, 1, -1), sinks)
        else:
            out = F.scaled_dot_product_attention(grouped, k, v, mask.view(n, 1, 1, -1), scale=self._scale)
        return out.reshape(n, q.shape[1], v.shape[3])

    def many_queries(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, sinks: torch.Tensor | None
    ) -> torch.Tensor:
        """Attention of one row with many queries.

        Args:
            q: `[num_queries, num_qo_heads, head_dim]`.
            k: `[num_kv_heads, num_keys, head_dim]`.
            v: `[num_kv_heads, num_keys, v_head_dim]`.
            mask: `[num_queries, num_keys]`, 0 or -inf.
            sinks: `[num_qo_heads]`, or None.

        Returns:
            `[num_queries, num_qo_heads, v_head_dim]`; each query must see a key.
        """
        if self._soft_cap is None and sinks is None:
            batched = q.transpose(0, 1).unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
            out = F.scaled_dot_product_attention(*batched, mask, scale=self._scale, enable_gqa=self._group > 1)
            return out.squeeze(0).transpose(0, 1)
        grouped = q.view(q.shape[0], self._num_kv_heads, self._group, -1).permute(1, 2, 0, 3)
        out = self._one_by_one(grouped.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), mask, sinks)
        return out.squeeze(0).permute(2, 0, 1, 3).flatten(1, 2)

    def _one_by_one(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, sinks: torch.Tensor | None
    ) -> torch.Tensor:
        """`[n, num_kv_heads, group, num_queries, v_head_dim]`, from q `[..., head_dim]` of that shape."""
        n, num_kv_heads, group, num_queries, head_dim = q.shape
        k, v = k.flatten(0, 1), v.flatten(0, 1)
        scores = torch.bmm(q.reshape(n * num_kv_heads, group * num_queries, head_dim), k.transpose(1, 2))
        scores = scores.float().mul_(self._scale).view(n, num_kv_heads, group, num_queries, -1)
        if self._soft_cap is not None:
            scores = scores.div_(self._soft_cap).tanh_().mul_(self._soft_cap)
        scores += mask
        if sinks is None:
            weights = scores.softmax(-1)
        else:
            sink = sinks.detach().float().view(num_kv_heads, group, 1, 1).expand(*scores.shape[:-1], 1)
            weights = torch.cat((scores, sink), -1).softmax(-1)[..., :-1]
        weights = weights.to(self.dtype).reshape(n * num_kv_heads, group * num_queries, -1)
        return torch.bmm(weights, v).view(n, num_kv_heads, group, num_queries, -1)


def _has_fast_bfloat16() -> bool:
    """Whether oneDNN runs bfloat16 products on this CPU."""
    built_in: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return built_in and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
