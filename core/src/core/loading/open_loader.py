"""Makes the weight loader that was selected."""

from __future__ import annotations

from pathlib import Path

from core.loading.weight_loader import WeightLoader, WeightLoaderContext
from core.plugins import import_factory, load_chosen, validate_options
from core.selection import Chosen


def open_loader(chosen: Chosen, path: Path) -> WeightLoader:
    """The loader for the model at `path`. Raises `PluginError` if its code does not load."""
    spec = load_chosen(chosen)
    loader: WeightLoader = import_factory(spec)(WeightLoaderContext(path, validate_options(spec, chosen.options)))
    return loader
