"""The weight loaders that core brings. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable

from core.hookspecs import hookimpl
from core.loading.capabilities import WeightLoaderCapabilities, WeightLoaderSpec
from core.specs import API_MAJOR, API_MINOR


@hookimpl
def core_weight_loaders() -> Iterable[WeightLoaderSpec]:
    """The loader of safetensors files, and random weights, which `auto` never picks."""
    return [
        WeightLoaderSpec(
            name="safetensors",
            api=(API_MAJOR, API_MINOR),
            capabilities=WeightLoaderCapabilities(suffixes=frozenset({".safetensors"})),
            factory="core.loading.safetensors_loader:SafetensorsLoader",
            auto_priority=100,
        ),
        WeightLoaderSpec(
            name="dummy",
            api=(API_MAJOR, API_MINOR),
            capabilities=WeightLoaderCapabilities(suffixes=frozenset()),
            factory="core.loading.dummy_loader:DummyLoader",
        ),
    ]
