"""What this distribution brings, said without importing torch."""

from __future__ import annotations

from collections.abc import Iterable

from core import KVPoolCapabilities, KVPoolSpec, hookimpl


@hookimpl
def core_kv_pools() -> Iterable[KVPoolSpec]:
    return [
        KVPoolSpec(
            name="mha",
            api=(1, 0),
            capabilities=KVPoolCapabilities(
                device_types="any",
                kv_dtypes=frozenset({"float32", "bfloat16", "float16"}),
                page_sizes="any",
                axis_order="NHD",
                mla=False,
            ),
            factory="plugin_kv_pool_mha.pool:MHAKVPool",
            auto_priority=100,
        )
    ]
