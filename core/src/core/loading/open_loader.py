"""Makes the weight loader that was selected."""

from __future__ import annotations

from pathlib import Path

from core.loading.weight_loader import WeightLoader, WeightLoaderContext
from core.plugins import import_factory, load_chosen, validate_options
from core.selection import Chosen


def open_loader(chosen: Chosen, path: Path, seed: int = 0) -> WeightLoader:
    """The loader for the model at `path`; `seed` is for random weights. Raises `PluginError` if it does not load."""
    spec = load_chosen(chosen)
    context = WeightLoaderContext(path, validate_options(spec, chosen.options), seed)
    loader: WeightLoader = import_factory(spec)(context)
    return loader
