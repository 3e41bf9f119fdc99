"""`GGUFLoader`: a model from one GGUF file."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, final

import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from core.loading.weight_loader import WeightLoader
from plugin_loader_gguf.dequantize import read_tensor
from plugin_loader_gguf.gguf_file import read_gguf
from plugin_loader_gguf.model_config import build_config
from plugin_loader_gguf.tokenizer import build_tokenizer
from plugin_loader_gguf.vocabulary import end_token_ids
from plugin_loader_gguf.weight_names import restore_rows, transformers_name

_SAMPLING: Final = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}


@final
class GGUFLoader(WeightLoader):
    """Reads a model from one `.gguf` file, or from the folder that holds exactly one.

    Weights come in the file's dtype where that is float32, float16 or bfloat16, else dequantised to float32.
    """

    def load_config(self) -> PretrainedConfig:
        """The configuration. Raises `ModelError` for an architecture that is not known here."""
        file = read_gguf(self.context.path)
        return build_config(file, end_token_ids(file))

    def load_generation_config(self) -> dict[str, Any]:
        """End-of-sequence ids, and the sampling parameters that the file recommends."""
        file = read_gguf(self.context.path)
        found = {name: file.metadata[key] for key, name in _SAMPLING.items() if key in file.metadata}
        for name, key in (("bos_token_id", "bos_token_id"), ("pad_token_id", "padding_token_id")):
            if (token_id := file.metadata.get(f"tokenizer.ggml.{key}")) is not None:
                found[name] = token_id
        if end_ids := end_token_ids(file):
            found["eos_token_id"] = end_ids
        return found

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer. Raises `ModelError` if the file has none, or one that is not known here."""
        return build_tokenizer(read_gguf(self.context.path))

    def iter_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every weight once, in the order of the file. Raises `ModelError` for a tensor that cannot be read."""
        file = read_gguf(self.context.path)
        with ThreadPoolExecutor(torch.get_num_threads(), "dequantize") as executor:
            for info in file.tensors.values():
                name = transformers_name(file, info.name)
                if name is not None:
                    yield name, restore_rows(file, info.name, read_tensor(file, info, executor))
