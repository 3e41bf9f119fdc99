"""Writes small GGUF files, as the converter of llama.cpp does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from core.loading.weight_loader import WeightLoaderContext
from core.specs import NoOptions
from plugin_loader_gguf.loader import GGUFLoader

Tensors = Mapping[str, np.ndarray | tuple[np.ndarray, Kind]]
WriteGGUF = Callable[..., Path]

LLAMA = {
    "llama.context_length": 64,
    "llama.embedding_length": 32,
    "llama.block_count": 2,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    "llama.rope.dimension_count": 8,
}


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


@pytest.fixture
def write_gguf(tmp_path: Path) -> WriteGGUF:
    """`write_gguf(metadata, tensors, architecture=, name=)` -> path. A tensor is an array, or its raw data and type."""

    def write(
        metadata: Mapping[str, Any], tensors: Tensors | None = None, architecture: str = "llama", name: str = "m.gguf"
    ) -> Path:
        path = tmp_path / name
        writer = gguf.GGUFWriter(path, architecture)
        for key, value in metadata.items():
            _add(writer, key, value)
        for tensor_name, tensor in (tensors or {}).items():
            if isinstance(tensor, tuple):
                writer.add_tensor(tensor_name, tensor[0], raw_dtype=tensor[1])
            else:
                writer.add_tensor(tensor_name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


@pytest.fixture
def write_llama(write_gguf: WriteGGUF) -> WriteGGUF:
    """`write_llama(extra_metadata, extra_tensors)` -> path: a llama whose weights are the embedding alone."""

    def write(extra: Mapping[str, Any] | None = None, tensors: Tensors | None = None) -> Path:
        embedding = np.zeros((48, 32), dtype=np.float32)
        metadata = {key: value for key, value in {**LLAMA, **(extra or {})}.items() if value is not None}
        return write_gguf(metadata, {"token_embd.weight": embedding, **(tensors or {})})

    return write


def loader_of(path: Path) -> GGUFLoader:
    return GGUFLoader(WeightLoaderContext(path, NoOptions()))


@pytest.fixture
def open_loader() -> Callable[[Path], GGUFLoader]:
    """`open_loader(path)` -> the loader."""
    return loader_of
