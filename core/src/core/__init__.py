"""An LLM serving engine as a plugin framework.

The public names. Those that need torch are imported when first used, so that a plugin's hooks module and the command
line stay light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.attention.backend import AttentionBackend, BackendContext
    from core.attention.capabilities import (
        AttentionBackendSpec,
        AttentionCapabilities,
        AttentionRequirements,
        CudaGraphSupport,
    )
    from core.attention.radix_attention import RadixAttention
    from core.hookspecs import hookimpl
    from core.loading.capabilities import WeightLoaderCapabilities, WeightLoaderRequirements, WeightLoaderSpec
    from core.loading.weight_loader import WeightLoader, WeightLoaderContext
    from core.managers.engine import Engine
    from core.mem_cache.capabilities import KVPoolCapabilities, KVPoolRequirements, KVPoolSpec
    from core.mem_cache.geometry import KVGroupGeometry
    from core.mem_cache.kv_pool import KVLayout, KVPool, KVPoolContext
    from core.model_executor.forward_batch import ForwardBatch
    from core.model_executor.forward_mode import ForwardMode
    from core.sampling.batch import SamplingBatch
    from core.sampling.capabilities import SamplerCapabilities, SamplerRequirements, SamplerSpec
    from core.sampling.params import SamplingParams
    from core.sampling.sampler import Sampler, SamplerContext
    from core.specs import DeviceInfo, NoOptions, Reason

_HOME = {
    "AttentionBackend": "core.attention.backend",
    "AttentionBackendSpec": "core.attention.capabilities",
    "AttentionCapabilities": "core.attention.capabilities",
    "AttentionRequirements": "core.attention.capabilities",
    "BackendContext": "core.attention.backend",
    "CudaGraphSupport": "core.attention.capabilities",
    "DeviceInfo": "core.specs",
    "Engine": "core.managers.engine",
    "ForwardBatch": "core.model_executor.forward_batch",
    "ForwardMode": "core.model_executor.forward_mode",
    "KVGroupGeometry": "core.mem_cache.geometry",
    "KVLayout": "core.mem_cache.kv_pool",
    "KVPool": "core.mem_cache.kv_pool",
    "KVPoolCapabilities": "core.mem_cache.capabilities",
    "KVPoolContext": "core.mem_cache.kv_pool",
    "KVPoolRequirements": "core.mem_cache.capabilities",
    "KVPoolSpec": "core.mem_cache.capabilities",
    "NoOptions": "core.specs",
    "RadixAttention": "core.attention.radix_attention",
    "Reason": "core.specs",
    "Sampler": "core.sampling.sampler",
    "SamplerCapabilities": "core.sampling.capabilities",
    "SamplerContext": "core.sampling.sampler",
    "SamplerRequirements": "core.sampling.capabilities",
    "SamplerSpec": "core.sampling.capabilities",
    "SamplingBatch": "core.sampling.batch",
    "SamplingParams": "core.sampling.params",
    "WeightLoader": "core.loading.weight_loader",
    "WeightLoaderCapabilities": "core.loading.capabilities",
    "WeightLoaderContext": "core.loading.weight_loader",
    "WeightLoaderRequirements": "core.loading.capabilities",
    "WeightLoaderSpec": "core.loading.capabilities",
    "hookimpl": "core.hookspecs",
}

__all__ = [
    "AttentionBackend",
    "AttentionBackendSpec",
    "AttentionCapabilities",
    "AttentionRequirements",
    "BackendContext",
    "CudaGraphSupport",
    "DeviceInfo",
    "Engine",
    "ForwardBatch",
    "ForwardMode",
    "KVGroupGeometry",
    "KVLayout",
    "KVPool",
    "KVPoolCapabilities",
    "KVPoolContext",
    "KVPoolRequirements",
    "KVPoolSpec",
    "NoOptions",
    "RadixAttention",
    "Reason",
    "Sampler",
    "SamplerCapabilities",
    "SamplerContext",
    "SamplerRequirements",
    "SamplerSpec",
    "SamplingBatch",
    "SamplingParams",
    "WeightLoader",
    "WeightLoaderCapabilities",
    "WeightLoaderContext",
    "WeightLoaderRequirements",
    "WeightLoaderSpec",
    "hookimpl",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
