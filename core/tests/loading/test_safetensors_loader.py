"""Safetensors in one file and in shards, and folders that are not whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from core.errors import ModelError
from core.loading.safetensors_loader import SafetensorsLoader

Tensors = dict[str, torch.Tensor]


def expect_same(got: list[tuple[str, torch.Tensor]], expected: Tensors) -> None:
    assert sorted(name for name, _ in got) == sorted(expected)
    for name, tensor in got:
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("name", ["model.safetensors", "other.safetensors"])
def test_one_file(name: str, folder: Path, loader: SafetensorsLoader, tensors: Tensors) -> None:
    save_file(tensors, folder / name)
    expect_same(list(loader.iter_weights()), tensors)


def test_shards(sharded: Path, loader: SafetensorsLoader, tensors: Tensors) -> None:
    # A file that the index does not name is not read.
    save_file({"z": torch.zeros(1)}, sharded / "adapter.safetensors")
    expect_same(list(loader.iter_weights()), tensors)


def test_a_file_is_opened_when_its_first_tensor_is_asked_for(sharded: Path, loader: SafetensorsLoader) -> None:
    weights = loader.iter_weights()
    next(weights)
    sharded.joinpath("model-2.safetensors").write_bytes(b"")
    next(weights)
    with pytest.raises(ModelError, match=r"model-2\.safetensors cannot be read"):
        next(weights)


def test_a_missing_shard_is_refused_by_name_before_any_is_read(sharded: Path, loader: SafetensorsLoader) -> None:
    sharded.joinpath("model-2.safetensors").unlink()
    with pytest.raises(ModelError, match=r"index\.json names model-2\.safetensors, which is not there; fetch 1 of"):
        next(loader.iter_weights())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "holds a JSON list, expected an object"),
        ("{}", "has no weight_map"),
        ('{"weight_map": {"a": 1}}', "has no weight_map"),
    ],
)
def test_a_damaged_index_is_refused(text: str, message: str, sharded: Path, loader: SafetensorsLoader) -> None:
    sharded.joinpath("model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelError, match=rf"index\.json {message}"):
        next(loader.iter_weights())


def test_a_damaged_file_is_refused_by_name(folder: Path, loader: SafetensorsLoader, tensors: Tensors) -> None:
    file = folder / "model.safetensors"
    save_file(tensors, file)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read .*fetch it again"):
        list(loader.iter_weights())


def test_a_folder_without_weights_is_refused(loader: SafetensorsLoader) -> None:
    with pytest.raises(ModelError, match=r"neither model\.safetensors nor model\.safetensors\.index\.json"):
        next(loader.iter_weights())
