"""What is decided once, in the parent process, before anything heavy is loaded: model, plugins, limits."""

from __future__ import annotations

from dataclasses import dataclass

from core.config import EngineConfig
from core.device import detect_device
from core.loading.model_info import ModelInfo, load_model_info
from core.loading.model_path import file_suffixes, resolve_model
from core.loading.open_loader import open_loader
from core.plugins import discover
from core.selection import Selection, select_runtime, select_weight_loader
from core.specs import DeviceInfo


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that a child process needs to build an engine; frozen and picklable.

    Every child loads exactly what `selection` says, and looks for nothing by itself.
    """

    config: EngineConfig
    device: DeviceInfo
    info: ModelInfo
    selection: Selection
