"""The hooks that a plugin implements, and the kinds of plugins that there are.

A hook runs at start-up only, once, and returns specs; the hot path calls plain methods of the objects that the
selected specs' factories made. Mark an implementation with `core.hookimpl`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pluggy

from core.attention.capabilities import AttentionBackendSpec
from core.loading.capabilities import WeightLoaderSpec
from core.mem_cache.capabilities import KVPoolSpec
from core.sampling.capabilities import SamplerSpec
from core.specs import API_MAJOR, API_MINOR

PROJECT_NAME = "core"

hookspec = pluggy.HookspecMarker(PROJECT_NAME)
hookimpl = pluggy.HookimplMarker(PROJECT_NAME)


@hookspec
def core_attention_backends() -> Iterable[AttentionBackendSpec]:  # type: ignore[empty-body]
    """Attention backends that this distribution brings. Called once at start-up, in every process."""


@hookspec
def core_kv_pools() -> Iterable[KVPoolSpec]:  # type: ignore[empty-body]
    """KV memory pools that this distribution brings. Called once at start-up, in every process."""


@hookspec
def core_samplers() -> Iterable[SamplerSpec]:  # type: ignore[empty-body]
    """Samplers that this distribution brings. Called once at start-up, in every process."""


@hookspec
def core_weight_loaders() -> Iterable[WeightLoaderSpec]:  # type: ignore[empty-body]
    """Weight loaders that this distribution brings. Called once at start-up, in every process."""


@dataclass(frozen=True, slots=True)
class PluginKind:
    """One kind of plugin: its entry-point group, which carries the API's major version, and its hook."""

    name: str
    hook: str
    api: tuple[int, int] = (API_MAJOR, API_MINOR)

    @property
    def group(self) -> str:
        """The entry-point group in which distributions of this kind register."""
        return f"core.{self.name}.v{self.api[0]}"


ATTENTION = PluginKind("attention", "core_attention_backends")
KV_POOL = PluginKind("kv_pool", "core_kv_pools")
SAMPLER = PluginKind("sampler", "core_samplers")
WEIGHT_LOADER = PluginKind("weight_loader", "core_weight_loaders")

KINDS: tuple[PluginKind, ...] = (ATTENTION, KV_POOL, SAMPLER, WEIGHT_LOADER)
