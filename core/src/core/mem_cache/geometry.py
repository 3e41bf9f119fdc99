"""The shape of one KV group: the layers that keep the same tokens for the same time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KVGroupGeometry:
    """Geometry of one KV group, known from the model's configuration alone.

    Attributes:
        num_layers: layers in the group; their `layer_id`s run from 0 within the group.
        num_qo_heads: query heads of a layer.
        num_kv_heads: key/value heads of a layer; divides `num_qo_heads`.
        head_dim: size of a query's and a key's head.
        v_head_dim: size of a value's head.
        scale: factor on q.k before the softmax.
        window: sliding window in tokens, the query's own included, or None for full attention.
        soft_cap: c in c * tanh(scores / c), or None.
        sinks: whether each head adds a learnt logit to the softmax.
        mla: whether the group keeps compressed latents.
    """

    num_layers: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    scale: float
    window: int | None = None
    soft_cap: float | None = None
    sinks: bool = False
    mla: bool = False
