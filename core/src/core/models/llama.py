"""The Llama family (Touvron et al., 2023): Llama, Mistral, Qwen2, Qwen3, which differ by the values of a `LlamaShape`.

Module names follow transformers', so that a checkpoint's names are where they are expected.
"""

from __future__ import annotations

from typing import final

import torch
from torch import nn
from torch.nn import functional as F

from core.attention.radix_attention import GroupForward, RadixAttention
from core.layers.linear import Linear
from core.layers.matmul import MatMul, PlainMatMul, fastest_matmul
from core.layers.ops import HeadNorms, LayerOps
from core.layers.placement import Placement
from core.layers.rotary import RotaryTable
from core.models.causal_lm import CausalLM
from core.models.llama_shape import LlamaShape


@final
class LlamaAttention(nn.Module):
    """Projections and rotation around a `RadixAttention`."""

    def __init__(self, shape: LlamaShape, layer_id: int, ops: LayerOps, placement: Placement) -> None:
        super().__init__()
        self._ops, self._num_qo_heads, self._num_kv_heads = ops, shape.num_qo_heads, shape.num_kv_heads
        q_size, kv_size = shape.num_qo_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.qkv_proj = Linear(
            shape.hidden_size,
            {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size},
            bias=shape.qkv_bias,
            placement=placement,
        )
        self.o_proj = Linear(q_size, {"o_proj": shape.hidden_size}, bias=shape.o_bias, placement=placement)
        self.attention = RadixAttention(layer_id)
        self._norms: HeadNorms | None = None
        if shape.qk_norm:
            self.q_norm, self.k_norm = placement.parameter(shape.head_dim), placement.parameter(shape.head_dim)
            self._norms = HeadNorms(self.q_norm, self.k_norm, shape.rms_norm_eps)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, groups: tuple[GroupForward, ...]
    ) -> torch.Tensor:
        qkv = self.qkv_proj(x)
        q, k, v = self._ops.rotate_qkv(qkv, self._num_qo_heads, self._num_kv_heads, cos, sin, self._norms)
        result: torch.Tensor = self.o_proj(self.attention(q, k, v, groups).flatten(1))
        return result

    def weight_targets(self, prefix: str) -> dict[str, torch.Tensor]:
        targets = {**self.qkv_proj.weight_targets(prefix), **self.o_proj.weight_targets(prefix)}
        if self._norms is not None:
            targets |= {f"{prefix}q_norm.weight": self.q_norm, f"{prefix}k_norm.weight": self.k_norm}
        return targets


@final
class LlamaMLP(nn.Module):
    """Gated feed-forward layer (SwiGLU; Shazeer, 2020)."""

    def __init__(self, shape: LlamaShape, ops: LayerOps, placement: Placement) -> None:
        super().__init__()
        self._ops = ops
        hidden_size, size, bias = shape.hidden_size, shape.intermediate_size, shape.mlp_bias
        self.gate_up_proj = Linear(hidden_size, {"gate_proj": size, "up_proj": size}, bias=bias, placement=placement)
        self.down_proj = Linear(size, {"down_proj": hidden_size}, bias=bias, placement=placement)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down_proj(self._ops.silu_and_mul(self.gate_up_proj(x)))
        return result

    def weight_targets(self, prefix: str) -> dict[str, torch.Tensor]:
        return {**self.gate_up_proj.weight_targets(prefix), **self.down_proj.weight_targets(prefix)}


@final
class LlamaLayer(nn.Module):
    """Takes the activations and the residual apart, so that adding them joins the norm that follows."""

    def __init__(self, shape: LlamaShape, layer_id: int, ops: LayerOps, placement: Placement) -> None:
        super().__init__()
        self._ops, self._eps = ops, shape.rms_norm_eps
        self.input_layernorm = placement.parameter(shape.hidden_size)
        self.self_attn = LlamaAttention(shape, layer_id, ops, placement)
        self.post_attention_layernorm = placement.parameter(shape.hidden_size)
        self.mlp = LlamaMLP(shape, ops, placement)

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        cos: torch.Tensor,
        sin: torch.Tensor,
        groups: tuple[GroupForward, ...],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if residual is None:
            residual, x = x, self._ops.rms_norm(x, self.input_layernorm, self._eps)
        else:
            x, residual = self._ops.add_rms_norm(x, residual, self.input_layernorm, self._eps)
        x = self.self_attn(x, cos, sin, groups)
        x, residual = self._ops.add_rms_norm(x, residual, self.post_attention_layernorm, self._eps)
        return self.mlp(x), residual

    def weight_targets(self, prefix: str) -> dict[str, torch.Tensor]:
        return {
            f"{prefix}input_layernorm.weight": self.input_layernorm,
            **self.self_attn.weight_targets(f"{prefix}self_attn."),
            f"{prefix}post_attention_layernorm.weight": self.post_attention_layernorm,
            **self.mlp.weight_targets(f"{prefix}mlp."),
        }

    def freeze(self) -> None:
        """As `CausalLM.freeze`."""
        for linear in (self.self_attn.qkv_proj, self.self_attn.o_proj, self.mlp.gate_up_proj, self.mlp.down_proj):
            linear.freeze()


@final
class LlamaForCausalLM(CausalLM):
    """A model of the family.

    Args:
        shape: of the model.
        max_context_len: positions run from 0 below this.
        ops: what the layers compute with between their matrix products.
        placement: of all parameters.
    """

    def __init__(self, shape: LlamaShape, *, max_context_len: int, ops: LayerOps, placement: Placement) -> None:
        super().__init__()
        self._ops, self._eps, self._tied = ops, shape.rms_norm_eps, shape.tied
        self.embed_tokens = placement.parameter(shape.vocab_size, shape.hidden_size)
        self._layers = [LlamaLayer(shape, layer_id, ops, placement) for layer_id in range(shape.num_layers)]
        self.layers = nn.ModuleList(self._layers)
        self.norm = placement.parameter(shape.hidden_size)
        self.lm_head = self.embed_tokens if shape.tied else placement.parameter(shape.vocab_size, shape.hidden_size)
        self._head: MatMul = PlainMatMul(self.lm_head, None)
        self._rotary = RotaryTable(
            shape.rope, head_dim=shape.head_dim, max_positions=max_context_len, placement=placement
        )

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, groups: tuple[GroupForward, ...]
    ) -> torch.Tensor:
        cos, sin = self._rotary.lookup(positions)
        x = F.embedding(input_ids, self.embed_tokens)
        residual: torch.Tensor | None = None
        for layer in self._layers:
            x, residual = layer(x, residual, cos, sin, groups)
        assert residual is not None
        x, _ = self._ops.add_rms_norm(x, residual, self.norm, self._eps)
        return x

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._head(hidden).float()

    def weight_targets(self) -> dict[str, torch.Tensor]:
        targets: dict[str, torch.Tensor] = {"model.embed_tokens.weight": self.embed_tokens}
        for layer_id, layer in enumerate(self._layers):
            targets |= layer.weight_targets(f"model.layers.{layer_id}.")
        targets["model.norm.weight"] = self.norm
        if not self._tied:
            targets["lm_head.weight"] = self.lm_head
        return targets

    def is_redundant(self, name: str) -> bool:
        return super().is_redundant(name) or (self._tied and name == "lm_head.weight")

    def freeze(self) -> None:
        for layer in self._layers:
            layer.freeze()
        self._head = fastest_matmul(self.lm_head, None)
        del self.lm_head
