"""The hooks that a plugin implements, and the kinds of plugins that there are.

A hook runs at start-up only, once, and returns specs; the hot path calls plain methods of the objects that the
selected specs' factories made. Mark an implementation with `core.hookimpl`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pluggy

from core.attention.capabilities import AttentionBackendSpec, AttentionCapabilities
from core.loading.capabilities import WeightLoaderCapabilities, WeightLoaderSpec
from core.mem_cache.capabilities import KVPoolCapabilities, KVPoolSpec
from core.sampling.capabilities import SamplerCapabilities, SamplerSpec
from core.specs import API_MAJOR, API_MINOR, PluginSpec

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginKind:
    """One kind of plugin.

    Attributes:
        name: in the entry-point group, in tables and in `--plugins-disable`.
        title: for sentences, in the singular.
        hook: the hook that its plugins implement.
        spec: what the hook returns an iterable of.
        capabilities: type of the spec's `capabilities`.
        flag: the option with which a user names a plugin of this kind.
        example: a distribution that brings one, for whoever has none installed.
        api: the version of the plugin API; the major one is in the group's name.
    """

    name: str
    title: str
    hook: str
    spec: type[PluginSpec[Any]]
    capabilities: type
    flag: str
    example: str
    api: tuple[int, int] = (API_MAJOR, API_MINOR)

    @property
    def group(self) -> str:
        """The entry-point group in which distributions of this kind register."""
        return f"core.{self.name}.v{self.api[0]}"


ATTENTION = PluginKind(
    name="attention",
    title="attention backend",
    hook="core_attention_backends",
    spec=AttentionBackendSpec,
    capabilities=AttentionCapabilities,
    flag="--attention-backend",
    example="plugin-attention-torch",
)
KV_POOL = PluginKind(
    name="kv_pool",
    title="KV pool",
    hook="core_kv_pools",
    spec=KVPoolSpec,
    capabilities=KVPoolCapabilities,
    flag="--kv-pool",
    example="plugin-kv-pool-mha",
)
SAMPLER = PluginKind(
    name="sampler",
    title="sampler",
    hook="core_samplers",
    spec=SamplerSpec,
    capabilities=SamplerCapabilities,
    flag="--sampler",
    example="core",
)
WEIGHT_LOADER = PluginKind(
    name="weight_loader",
    title="weight loader",
    hook="core_weight_loaders",
    spec=WeightLoaderSpec,
    capabilities=WeightLoaderCapabilities,
    flag="--load-format",
    example="plugin-loader-gguf",
)

KINDS: tuple[PluginKind, ...] = (ATTENTION, KV_POOL, SAMPLER, WEIGHT_LOADER)


def kind_named(name: str) -> PluginKind | None:
    """The kind of that name, or None: a distribution may have been written for kinds that this core does not know."""
    return next((kind for kind in KINDS if kind.name == name), None)
