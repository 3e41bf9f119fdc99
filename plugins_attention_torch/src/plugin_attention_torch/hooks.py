"""What this distribution brings, said without importing torch."""

from __future__ import annotations

from collections.abc import Iterable

from core import AttentionBackendSpec, AttentionCapabilities, CudaGraphSupport, ForwardMode, hookimpl

_DTYPES = frozenset({"float32", "bfloat16", "float16"})


@hookimpl
def core_attention_backends() -> Iterable[AttentionBackendSpec]:
    return [
        AttentionBackendSpec(
            name="torch",
            api=(1, 0),
            capabilities=AttentionCapabilities(
                device_types="any",
                dtypes=_DTYPES,
                kv_dtypes=_DTYPES,
                kv_axis_orders=frozenset({"NHD"}),
                head_dims="any",
                v_head_dim_may_differ=True,
                gqa_ratios="any",
                page_sizes="any",
                window=True,
                soft_cap=True,
                sinks=True,
                mla=False,
                modes=frozenset({ForwardMode.EXTEND.value, ForwardMode.DECODE.value, ForwardMode.MIXED.value}),
                cuda_graph=CudaGraphSupport.NEVER,
                needs_cpu_seq_lens=True,
                deterministic=True,
                batch_invariant=False,
            ),
            factory="plugin_attention_torch.backend:TorchAttentionBackend",
            auto_priority=10,
        )
    ]
