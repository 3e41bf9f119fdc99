"""`FolderLoader`: what the loaders of a folder in transformers' format share: its configuration and tokenizer."""

from __future__ import annotations

from abc import ABC
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase

from core.errors import ModelError
from core.loading.json_file import read_json_object
from core.loading.weight_loader import WeightLoader

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")


class FolderLoader(WeightLoader, ABC):
    """Reads `config.json`, `generation_config.json` and the tokenizer's files. Never asks the network."""

    def load_config(self) -> PretrainedConfig:
        file = self.context.path / "config.json"
        if not file.is_file():
            raise ModelError(
                f"There is no {file}; give the folder of a model in transformers' format, or another --load-format"
            )
        read_json_object(file)
        try:
            config: PretrainedConfig = AutoConfig.from_pretrained(self.context.path, local_files_only=True)
        except (ValueError, OSError, KeyError, TypeError, StrictDataclassError) as error:
            raise ModelError(f"transformers cannot read {file}: {error}") from error
        return config

    def load_generation_config(self) -> dict[str, Any]:
        file = self.context.path / "generation_config.json"
        return read_json_object(file) if file.is_file() else {}

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        path = self.context.path
        if not any((path / name).is_file() for name in _TOKENIZER_FILES):
            raise ModelError(f"{path} has no tokenizer ({', '.join(_TOKENIZER_FILES)}); name another with --tokenizer")
        try:
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, local_files_only=True)
        except Exception as error:  # the tokenizers library raises nothing narrower
            raise ModelError(f"The tokenizer in {path} cannot be loaded: {error}") from error
        return tokenizer
