"""A folder's configuration, generation config and tokenizer, and what is said where they are damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast

from core.errors import ModelError
from core.loading.safetensors_loader import SafetensorsLoader


def test_the_configuration(loader: SafetensorsLoader) -> None:
    config = loader.load_config()
    assert isinstance(config, LlamaConfig)
    assert (config.hidden_size, config.architectures) == (16, ["LlamaForCausalLM"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"config\.json is not JSON"),
        ("3", r"config\.json holds a JSON int, expected an object"),
        ("{}", r"cannot read .*config\.json.*model_type"),
        ('{"model_type": "unheard-of"}', r"cannot read .*config\.json.*unheard-of"),
        ('{"model_type": "llama", "hidden_size": "wide"}', r"(?s)cannot read .*config\.json.*hidden_size"),
    ],
)
def test_a_damaged_configuration_is_refused(text: str, message: str, folder: Path, loader: SafetensorsLoader) -> None:
    folder.joinpath("config.json").write_text(text)
    with pytest.raises(ModelError, match=message):
        loader.load_config()


def test_a_folder_of_something_else_is_refused(folder: Path, loader: SafetensorsLoader) -> None:
    folder.joinpath("config.json").unlink()
    with pytest.raises(ModelError, match=r"There is no .*config\.json; give the folder"):
        loader.load_config()


def test_the_generation_config(folder: Path, loader: SafetensorsLoader) -> None:
    assert loader.load_generation_config() == {}
    folder.joinpath("generation_config.json").write_text(json.dumps({"top_p": 0.9}))
    assert loader.load_generation_config() == {"top_p": 0.9}
    folder.joinpath("generation_config.json").write_text("nothing")
    with pytest.raises(ModelError, match=r"generation_config\.json is not JSON"):
        loader.load_generation_config()


def test_the_tokenizer(folder: Path, loader: SafetensorsLoader) -> None:
    words = Tokenizer(models.WordLevel({"hello": 0, "world": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    assert loader.load_tokenizer()("world hello")["input_ids"] == [1, 0]


def test_a_folder_without_tokenizer_is_refused(loader: SafetensorsLoader) -> None:
    with pytest.raises(ModelError, match=r"has no tokenizer .*--tokenizer"):
        loader.load_tokenizer()


def test_a_damaged_tokenizer_is_refused(folder: Path, loader: SafetensorsLoader) -> None:
    folder.joinpath("tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match=r"The tokenizer in .* cannot be loaded"):
        loader.load_tokenizer()
