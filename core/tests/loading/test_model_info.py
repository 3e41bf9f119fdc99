"""What is decided from a configuration before any weight is read."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.config import ModelConfig
from core.errors import ConfigError, ModelError
from core.loading.model_info import ModelInfo, load_model_info
from core.loading.safetensors_loader import SafetensorsLoader

Configure = Callable[..., None]


def info(loader: SafetensorsLoader, **settings: Any) -> ModelInfo:
    return load_model_info(loader, ModelConfig(model="any", **settings))


def test_it_survives_pickling(loader: SafetensorsLoader, folder: Path) -> None:
    made = info(loader)
    again = pickle.loads(pickle.dumps(made))
    for one in (made, again):
        assert (one.path, one.architecture, one.vocab_size, one.hidden_size) == (folder, "LlamaForCausalLM", 20, 16)
        assert (one.max_context_len, one.eos_token_ids, one.generation_defaults) == (128, (2,), {})
    assert again.kv_groups == made.kv_groups
    assert again.hf_config.to_dict() == made.hf_config.to_dict()


@pytest.mark.parametrize(
    ("own", "asked", "expected"),
    [
        ({}, "auto", "float32"),
        ({"dtype": "bfloat16"}, "auto", "bfloat16"),
        ({"torch_dtype": "float16"}, "auto", "float16"),
        ({"dtype": "bfloat16"}, "float32", "float32"),
        ({}, "float16", "float16"),
        ({"dtype": "float64"}, "bfloat16", "bfloat16"),
    ],
)
def test_dtype(own: dict[str, str], asked: str, expected: str, configure: Configure, loader: SafetensorsLoader) -> None:
    configure(**own)
    assert info(loader, dtype=asked).dtype == expected


def test_a_dtype_of_its_own_that_is_not_served_is_refused(configure: Configure, loader: SafetensorsLoader) -> None:
    configure(dtype="float64")
    with pytest.raises(ModelError, match="own dtype is float64; choose one of float32, bfloat16, float16 with --dtype"):
        info(loader)


@pytest.mark.parametrize(
    ("rope", "asked", "expected"),
    [
        (None, None, 128),
        (None, 1, 1),
        (None, 128, 128),
        ({"rope_type": "linear", "factor": 4.0}, None, 128),
        ({"rope_type": "linear", "factor": 4.0}, 512, 512),
        ({"type": "yarn", "factor": 2.0}, None, 256),
    ],
)
def test_context_length(
    rope: dict[str, Any] | None, asked: int | None, expected: int, configure: Configure, loader: SafetensorsLoader
) -> None:
    configure(rope_scaling=rope)
    assert info(loader, context_length=asked).max_context_len == expected


def test_a_context_beyond_the_model_is_refused_with_figures(configure: Configure, loader: SafetensorsLoader) -> None:
    with pytest.raises(ConfigError, match=r"--context-length 129 .*128 tokens at most \(max_position_embeddings 128"):
        info(loader, context_length=129)
    configure(rope_scaling={"rope_type": "linear", "factor": 4.0})
    with pytest.raises(ConfigError, match=r"513 .*512 tokens at most \(max_position_embeddings 128, .* linear by 4\)"):
        info(loader, context_length=513)


def test_dynamic_rope_beyond_the_original_length_warns(
    configure: Configure, loader: SafetensorsLoader, caplog: pytest.LogCaptureFixture
) -> None:
    configure(rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    assert info(loader, context_length=128).max_context_len == 128
    assert not caplog.records
    assert info(loader, context_length=256).max_context_len == 256
    assert "dynamic RoPE beyond 128 tokens" in caplog.text


@pytest.mark.parametrize(
    ("own", "generation", "expected"),
    [
        (2, {}, (2,)),
        ([3, 4], {}, (3, 4)),
        (2, {"eos_token_id": 7}, (7,)),
        (2, {"eos_token_id": [7, 8, 7]}, (7, 8)),
        (2, {"eos_token_id": None}, (2,)),
        (2, {"eos_token_id": 0}, (0,)),
        (None, {}, ()),
    ],
)
def test_eos(
    own: Any, generation: dict[str, Any], expected: tuple[int, ...], configure: Configure, loader: SafetensorsLoader
) -> None:
    configure(eos_token_id=own)
    loader.context.path.joinpath("generation_config.json").write_text(json.dumps(generation))
    made = info(loader)
    assert (made.eos_token_ids, made.generation_defaults) == (expected, generation)


def test_an_unknown_architecture_is_refused(configure: Configure, loader: SafetensorsLoader) -> None:
    configure(architectures=["LlamaForSequenceClassification"])
    with pytest.raises(ModelError, match="names LlamaForSequenceClassification; supported are LlamaForCausalLM, Mis"):
        info(loader)


def test_quantised_weights_are_refused(configure: Configure, loader: SafetensorsLoader) -> None:
    configure(quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(ModelError, match="quantised"):
        info(loader)
