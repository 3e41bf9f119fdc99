"""Weights that went through the converter's names and order come back as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from core.errors import ModelError
from plugin_loader_gguf.loader import GGUFLoader

Write = Callable[..., Path]
Open = Callable[[Path], GGUFLoader]

SIZES: dict[str, Any] = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
MODELS: dict[str, tuple[str, type[PreTrainedModel], Any]] = {
    "llama": ("llama", LlamaForCausalLM, LlamaConfig(**SIZES)),
    "llama-tied": ("llama", LlamaForCausalLM, LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama-biases": ("llama", LlamaForCausalLM, LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True)),
    "llama-head-dim": ("llama", LlamaForCausalLM, LlamaConfig(**SIZES, head_dim=16)),
    "mistral": ("llama", MistralForCausalLM, MistralConfig(**SIZES, sliding_window=16)),
    "qwen2": ("qwen2", Qwen2ForCausalLM, Qwen2Config(**SIZES)),
    "qwen3": ("qwen3", Qwen3ForCausalLM, Qwen3Config(**SIZES, head_dim=16)),
}
ARCHITECTURES = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}


def convert(write_gguf: Write, architecture: str, model: PreTrainedModel) -> Path:
    """Write a model as the converter does: llama.cpp's names, and for `llama` its order of query and key rows."""
    config = model.config
    names = gguf.get_tensor_name_map(ARCHITECTURES[architecture], config.num_hidden_layers)
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.numpy()
        for part, num_heads in (("q", config.num_attention_heads), ("k", config.num_key_value_heads)):
            if architecture == "llama" and f".{part}_proj." in name:
                halves = values.reshape(num_heads, 2, -1, *values.shape[1:])
                values = halves.swapaxes(1, 2).reshape(values.shape)
        base, _, kind = name.rpartition(".")
        tensors[f"{names.get_name(base)}.{kind}"] = np.ascontiguousarray(values)
    metadata = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "vocab_size": config.vocab_size,
    }
    if (head_dim := getattr(config, "head_dim", None)) is not None:
        metadata |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    if config.model_type == "mistral":
        metadata["attention.sliding_window"] = config.sliding_window
    return write_gguf({f"{architecture}.{key}": value for key, value in metadata.items()}, tensors, architecture)


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest, write_gguf: Write) -> tuple[PreTrainedModel, Path]:
    architecture, model_class, config = MODELS[request.param]
    torch.manual_seed(0)
    model = model_class(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return model, convert(write_gguf, architecture, model)


def test_weights_come_back_under_transformers_names(case: tuple[PreTrainedModel, Path], open_loader: Open) -> None:
    model, path = case
    got = {name: tensor.clone() for name, tensor in open_loader(path).iter_weights()}
    expected = model.state_dict()
    if model.config.tie_word_embeddings:
        del expected["lm_head.weight"]
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_a_model_of_the_file_s_configuration_answers_as_the_original(
    case: tuple[PreTrainedModel, Path], open_loader: Open
) -> None:
    """Longer than the sliding window, so that its being lost would show."""
    model, path = case
    loader = open_loader(path)
    config = loader.load_config()
    assert config.architectures == [type(model).__name__]
    assert config.dtype == torch.float32
    again = type(model)(config)
    missing = again.load_state_dict(dict(loader.iter_weights()), strict=False).missing_keys
    assert missing == (["lm_head.weight"] if model.config.tie_word_embeddings else [])
    again.tie_weights()
    ids = torch.arange(40)[None]
    with torch.inference_mode():
        torch.testing.assert_close(again.eval()(ids).logits, model.eval()(ids).logits)


@pytest.mark.parametrize("name", ["llama", "llama-tied", "qwen2", "qwen3"])
def test_weights_equal_transformers_own_reading(name: str, write_gguf: Write, open_loader: Open) -> None:
    architecture, model_class, config = MODELS[name]
    path = convert(write_gguf, architecture, model_class(config))
    expected = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model_class(config))["tensors"]
    got = dict(open_loader(path).iter_weights())
    assert {name: tensor for name, tensor in expected.items() if not torch.equal(tensor, got[name])} == {}
    assert got.keys() - expected.keys() == set()


def test_a_tensor_that_is_no_part_of_the_architecture_is_refused_by_name(write_llama: Write, open_loader: Open) -> None:
    path = write_llama(None, {"blk.0.ssm_in.weight": np.zeros((2, 2), dtype=np.float32)})
    with pytest.raises(ModelError, match=r"a tensor blk\.0\.ssm_in\.weight"):
        list(open_loader(path).iter_weights())


def test_frequencies_are_no_weights(write_llama: Write, open_loader: Open) -> None:
    frequencies = {"rope_freqs.weight": np.ones(4, dtype=np.float32)}
    assert [name for name, _ in open_loader(write_llama(None, frequencies)).iter_weights()] == [
        "model.embed_tokens.weight"
    ]
