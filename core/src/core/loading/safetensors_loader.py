"""`SafetensorsLoader`: weights in a folder of transformers, in one file or in shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import final

import torch
from safetensors import SafetensorError, safe_open

from core.errors import ModelError
from core.loading.folder_loader import FolderLoader
from core.loading.json_file import read_json_object

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


@final
class SafetensorsLoader(FolderLoader):
    """Maps one file after the other; no more than one tensor is in host memory."""

    def iter_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        for file in self._files():
            try:
                with safe_open(file, framework="pt") as tensors:
                    for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                        yield name, tensors.get_tensor(name)
            except SafetensorError as error:
                raise ModelError(f"{file} cannot be read ({error}); fetch it again") from error

    def _files(self) -> list[Path]:
        """The files to read; all of them are there."""
        folder = self.context.path
        if (folder / _INDEX).is_file():
            return self._shards(folder / _INDEX)
        if (folder / _SINGLE).is_file():
            return [folder / _SINGLE]
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise ModelError(f"{folder} has neither {_SINGLE} nor {_INDEX}; fetch the weights, or use another folder")
        return files

    def _shards(self, index: Path) -> list[Path]:
        weight_map = read_json_object(index).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise ModelError(f"{index} has no weight_map from tensors to files; fetch it again")
        names = sorted(set(weight_map.values()))
        missing = [name for name in names if not (index.parent / name).is_file()]
        if missing:
            raise ModelError(
                f"{index} names {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not there; "
                f"fetch {len(missing)} of its {len(names)} files again"
            )
        return [index.parent / name for name in names]
