"""The plugin as the engine sees it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

from core.hookspecs import WEIGHT_LOADER
from core.loading.capabilities import WeightLoaderRequirements
from core.specs import DeviceInfo
from plugin_loader_gguf import hooks


def test_the_entry_point_names_the_hooks() -> None:
    (found,) = (entry for entry in entry_points(group=WEIGHT_LOADER.group) if entry.name == "gguf")
    assert found.value == hooks.__name__


def test_it_reads_gguf_files_and_no_others() -> None:
    (spec,) = hooks.core_weight_loaders()
    assert spec.name == "gguf"
    assert spec.probe(DeviceInfo("cpu")) == []
    assert spec.capabilities.mismatches(WeightLoaderRequirements(suffixes=frozenset({".gguf"}))) == []
    (reason,) = spec.capabilities.mismatches(WeightLoaderRequirements(suffixes=frozenset({".safetensors"})))
    assert reason.code == "FILES"


def test_the_hooks_are_light() -> None:
    code = "import sys, plugin_loader_gguf.hooks; print({'torch', 'gguf', 'numpy', 'transformers'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output.strip() == "set()"
