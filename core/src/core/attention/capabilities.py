"""What a model asks of an attention backend, and what a backend says that it does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from core.specs import Anything, PluginSpec, Reason, check_flag, check_member


class CudaGraphSupport(Enum):
    """Which forward passes of a backend may be captured in a CUDA graph."""

    NEVER = "never"
    DECODE = "decode"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRequirements:
    """What one KV group of a model, with one configuration, asks of its attention backend.

    Attributes:
        device_type: torch's name of the device type, such as `cpu` or `cuda`.
        dtype: dtype of queries and outputs, by torch's name without the prefix, such as `bfloat16`.
        kv_dtype: dtype of the pool's keys and values.
        kv_axis_order: axis order of the pool, as in `KVLayout.axis_order`.
        head_dim: size of a query's and a key's head.
        v_head_dim: size of a value's head.
        num_qo_heads: query heads.
        num_kv_heads: key/value heads; divides `num_qo_heads`.
        page_size: tokens a page.
        window: sliding window in tokens, the query's own included, or None.
        soft_cap: c in c * tanh(scores / c), or None.
        sinks: whether each head adds a learnt logit to the softmax.
        mla: whether the pool holds compressed latents (multi-head latent attention).
        cuda_graph: the capture that is asked for; `NEVER` asks for none.
        modes: names of the `ForwardMode`s that the backend will be called with.
    """

    device_type: str
    dtype: str
    kv_dtype: str
    kv_axis_order: str
    head_dim: int
    v_head_dim: int
    num_qo_heads: int
    num_kv_heads: int
    page_size: int
    window: int | None
    soft_cap: float | None
    sinks: bool
    mla: bool
    cuda_graph: CudaGraphSupport
    modes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCapabilities:
    """What an attention backend does. Every field is required: a default could lie.

    Attributes:
        device_types: torch's names of device types.
        dtypes: dtypes of queries and outputs.
        kv_dtypes: dtypes of keys and values that it reads.
        kv_axis_orders: `KVLayout.axis_order`s that it reads.
        head_dims: sizes of a query's and key's head.
        v_head_dim_may_differ: whether a value's head may have another size.
        gqa_ratios: query heads a KV head.
        page_sizes: tokens a page.
        window: sliding windows of any size.
        soft_cap: soft-capped scores.
        sinks: learnt sink logits.
        mla: compressed latents.
        modes: names of the `ForwardMode`s that it serves.
        cuda_graph: which passes may be captured. A runner asked for more goes eager and says so.
        needs_cpu_seq_lens: whether it reads the host copies of lengths in `ForwardBatch`; without it they are None.
        deterministic: the same inputs give the same bits.
        batch_invariant: a row's result does not depend on the other rows, to the bit.
    """

    device_types: frozenset[str] | Anything
    dtypes: frozenset[str] | Anything
    kv_dtypes: frozenset[str] | Anything
    kv_axis_orders: frozenset[str] | Anything
    head_dims: frozenset[int] | Anything
    v_head_dim_may_differ: bool
    gqa_ratios: frozenset[int] | Anything
    page_sizes: frozenset[int] | Anything
    window: bool
    soft_cap: bool
    sinks: bool
    mla: bool
    modes: frozenset[str]
    cuda_graph: CudaGraphSupport
    needs_cpu_seq_lens: bool
    deterministic: bool
    batch_invariant: bool

    def mismatches(self, requirements: AttentionRequirements) -> list[Reason]:
        """Every reason why this backend cannot serve `requirements`; empty means that it can."""
        want, reasons = requirements, list[Reason]()
        check_member(reasons, "DEVICE", want.device_type, self.device_types)
        check_member(reasons, "DTYPE", want.dtype, self.dtypes, "try another --dtype")
        check_member(reasons, "KV_DTYPE", want.kv_dtype, self.kv_dtypes, "try another --kv-cache-dtype")
        check_member(reasons, "KV_LAYOUT", want.kv_axis_order, self.kv_axis_orders, "try another --kv-pool")
        check_member(reasons, "HEAD_DIM", want.head_dim, self.head_dims)
        check_flag(reasons, "V_HEAD_DIM", want.v_head_dim != want.head_dim, self.v_head_dim_may_differ)
        check_member(reasons, "GQA_RATIO", want.num_qo_heads // want.num_kv_heads, self.gqa_ratios)
        check_member(reasons, "PAGE_SIZE", want.page_size, self.page_sizes, "try another --page-size")
        check_flag(reasons, "WINDOW", want.window, self.window)
        check_flag(reasons, "SOFT_CAP", want.soft_cap, self.soft_cap)
        check_flag(reasons, "SINKS", want.sinks, self.sinks)
        check_flag(reasons, "MLA", want.mla, self.mla)
        for mode in sorted(want.modes):
            check_member(reasons, "MODE", mode, self.modes)
        return reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionBackendSpec(PluginSpec[AttentionCapabilities]):
    """An attention backend. The factory takes a `BackendContext` and returns an `AttentionBackend`."""
