"""What is decided once, in the parent process, before anything heavy is loaded: the model, and who runs it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from core.config import EngineConfig
from core.device import detect_device
from core.loading.model_info import ModelInfo, load_model_info
from core.loading.model_path import file_suffixes, resolve_model
from core.loading.open_loader import open_loader
from core.plugins import discover
from core.selection import Selection, select_runtime, select_weight_loader
from core.specs import DeviceInfo

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that a child process needs to build an engine; frozen and picklable.

    A child loads exactly what `selection` names, and looks for nothing by itself.
    """

    config: EngineConfig
    device: DeviceInfo
    info: ModelInfo
    selection: Selection


def prepare(config: EngineConfig) -> Prepared:
    """Find the model, read its configuration, and select every plugin.

    Raises `ModelError`, `ConfigError` or `SelectionError` before any weight is read.
    """
    registry = discover(disabled=config.plugins.plugins_disable)
    device = detect_device(config.model.device)
    path = resolve_model(config.model.model, config.model.revision)
    loader = select_weight_loader(registry, config.model.load_format, file_suffixes(path), device)
    info = load_model_info(open_loader(loader, path), config.model)
    selection = select_runtime(registry, config, device, info.dtype, info.kv_groups, loader)
    return Prepared(config, device, info, selection)
