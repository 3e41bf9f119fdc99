"""A tiny model's folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from core.loading.safetensors_loader import SafetensorsLoader
from core.loading.weight_loader import WeightLoaderContext
from core.specs import NoOptions

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
    "eos_token_id": 2,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Holds `config.json` alone."""
    tmp_path.joinpath("config.json").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.fixture
def configure(folder: Path) -> Callable[..., None]:
    """Changes values of `config.json`."""

    def change(**values: Any) -> None:
        folder.joinpath("config.json").write_text(json.dumps(CONFIG | values))

    return change


@pytest.fixture
def loader(folder: Path) -> SafetensorsLoader:
    return SafetensorsLoader(WeightLoaderContext(folder, NoOptions()))


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    """Some tensors, in the order of their names."""
    return {name: torch.arange(4.0) + index for index, name in enumerate("abcd")}


@pytest.fixture
def sharded(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """`folder` with the tensors in two files and an index."""
    for number, names in ((1, "ab"), (2, "cd")):
        save_file({name: tensors[name] for name in names}, folder / f"model-{number}.safetensors")
    weight_map = {name: f"model-{1 if name in 'ab' else 2}.safetensors" for name in tensors}
    folder.joinpath("model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder
