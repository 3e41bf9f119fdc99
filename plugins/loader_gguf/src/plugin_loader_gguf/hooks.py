"""What this distribution brings. Imports neither torch nor the gguf package."""

from __future__ import annotations

from collections.abc import Iterable

from core.hookspecs import hookimpl
from core.loading.capabilities import WeightLoaderCapabilities, WeightLoaderSpec
from core.specs import API_MAJOR, API_MINOR


@hookimpl
def core_weight_loaders() -> Iterable[WeightLoaderSpec]:
    """The loader of GGUF files."""
    return [
        WeightLoaderSpec(
            name="gguf",
            api=(API_MAJOR, API_MINOR),
            capabilities=WeightLoaderCapabilities(suffixes=frozenset({".gguf"})),
            factory="plugin_loader_gguf.loader:GGUFLoader",
            auto_priority=100,
        )
    ]
