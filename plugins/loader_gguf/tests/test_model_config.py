"""Configurations from metadata."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from core.errors import ModelError
from plugin_loader_gguf.gguf_file import read_gguf
from plugin_loader_gguf.loader import GGUFLoader

Write = Callable[..., Path]
Open = Callable[[Path], GGUFLoader]


def test_fields_come_from_the_metadata(write_llama: Write, open_loader: Open) -> None:
    config = open_loader(write_llama({"llama.rope.freq_base": 5e5, "tokenizer.ggml.bos_token_id": 3})).load_config()
    assert isinstance(config, LlamaConfig)
    assert (config.hidden_size, config.intermediate_size, config.num_hidden_layers) == (32, 64, 2)
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (4, 2, 8)
    assert (config.vocab_size, config.max_position_embeddings) == (48, 64)
    assert config.rms_norm_eps == pytest.approx(1e-5)
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 5e5}
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (3, None, None)
    assert config.tie_word_embeddings


def test_head_counts_and_theta_have_defaults(write_llama: Write, open_loader: Open) -> None:
    absent = {"llama.attention.head_count_kv": None, "llama.rope.freq_base": None, "llama.rope.dimension_count": None}
    config = open_loader(write_llama(absent)).load_config()
    assert config.num_key_value_heads == 4
    assert config.rope_parameters["rope_theta"] == 10000.0


def test_an_output_matrix_unties_the_embeddings(write_llama: Write, open_loader: Open) -> None:
    output = {"output.weight": np.zeros((48, 32), dtype=np.float32)}
    assert not open_loader(write_llama(None, output)).load_config().tie_word_embeddings


@pytest.mark.parametrize(
    ("kinds", "dtype"),
    [
        ([Kind.F16], torch.float16),
        ([Kind.BF16], torch.bfloat16),
        ([Kind.F16, Kind.BF16], torch.float32),
        ([Kind.F16, Kind.Q8_0], torch.float32),
        ([], torch.float32),
    ],
)
def test_the_dtype_is_the_matrices(
    write_llama: Write, open_loader: Open, kinds: list[Kind], dtype: torch.dtype
) -> None:
    row = {Kind.F16: 64, Kind.BF16: 64, Kind.Q8_0: 34}
    tensors = {f"blk.{i}.attn_v.weight": (np.zeros((16, row[kind]), np.uint8), kind) for i, kind in enumerate(kinds)}
    assert open_loader(write_llama(None, tensors)).load_config().dtype == dtype


LINEAR = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
YARN = {
    "llama.rope.scaling.type": "yarn",
    "llama.rope.scaling.factor": 4.0,
    "llama.rope.scaling.original_context_length": 16,
}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (LINEAR, {"rope_type": "linear", "factor": 4.0}),
        ({"llama.rope.scaling.type": "none"}, {"rope_type": "default"}),
        ({**LINEAR, "llama.rope.scaling.factor": 1.0}, {"rope_type": "default"}),
        (YARN, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}),
        (
            {**YARN, "llama.rope.scaling.yarn_beta_fast": 24.0, "llama.rope.scaling.attn_factor": 2.0},
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 16,
                "beta_fast": 24.0,
                "attention_factor": pytest.approx(2 * (0.1 * math.log(4) + 1)),
            },
        ),
    ],
)
def test_rope_scaling(
    write_llama: Write, open_loader: Open, metadata: dict[str, Any], expected: dict[str, Any]
) -> None:
    parameters = open_loader(write_llama(metadata)).load_config().rope_parameters
    assert parameters == {"rope_theta": 10000.0, **expected}


@pytest.mark.parametrize(("factor", "original"), [(8.0, 8192), (32.0, 8192), (8.0, 2048)])
def test_llama3_scaling_is_recognised_by_its_frequencies(
    write_llama: Write, open_loader: Open, factor: float, original: int
) -> None:
    wanted = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original,
    }
    source = LlamaConfig(hidden_size=256, num_attention_heads=4, rope_parameters=wanted)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](source, torch.device("cpu"))
    plain = 1 / 500000.0 ** (torch.arange(0, 64, 2) / 64)
    sizes = {"llama.rope.freq_base": 500000.0, "llama.attention.key_length": 64, "llama.attention.value_length": 64}
    path = write_llama(
        {**sizes, "llama.rope.dimension_count": 64}, {"rope_freqs.weight": (plain / scaled).float().numpy()}
    )
    assert open_loader(path).load_config().rope_parameters == wanted


@pytest.mark.parametrize(
    ("metadata", "tensors", "said"),
    [
        ({"llama.expert_count": 8}, {}, "8 experts"),
        ({"llama.attention.head_count": None}, {}, r"lacks the metadata llama\.attention\.head_count"),
        ({"llama.attention.head_count": [4, 2]}, {}, "differ from layer to layer"),
        ({"llama.attention.value_length": 4}, {}, "keys of 8 and values of 4"),
        ({"llama.rope.dimension_count": 4}, {}, "rotates 4 of 8"),
        ({"llama.rope.scaling.type": "longrope"}, {}, "'longrope'; supported are none, linear and yarn"),
        ({**YARN, "llama.rope.scaling.factor": 1.0}, {}, "yarn with the factor"),
        ({}, {"rope_freqs.weight": np.array([1, 2, 3, 4], np.float32)}, "not Llama 3's"),
        ({"llama.attention.head_count": 5, "llama.rope.dimension_count": None}, {}, "transformers refuses"),
    ],
)
def test_what_is_not_supported_is_refused(
    write_llama: Write, open_loader: Open, metadata: dict[str, Any], tensors: dict[str, np.ndarray], said: str
) -> None:
    with pytest.raises(ModelError, match=said):
        open_loader(write_llama(metadata, tensors)).load_config()


def test_an_unknown_architecture_is_refused_with_the_known_ones(write_gguf: Write, open_loader: Open) -> None:
    with pytest.raises(ModelError, match="'gemma3'; supported are llama, qwen2, qwen3"):
        open_loader(write_gguf({}, architecture="gemma3")).load_config()


def test_a_window_in_another_architecture_is_refused(write_gguf: Write, open_loader: Open) -> None:
    path = write_gguf({"qwen2.attention.sliding_window": 8}, architecture="qwen2")
    with pytest.raises(ModelError, match="sliding window"):
        open_loader(path).load_config()


def test_a_file_without_an_embedding_is_refused(write_llama: Write, write_gguf: Write, open_loader: Open) -> None:
    metadata = dict(read_gguf(write_llama()).metadata)
    del metadata["general.architecture"]
    with pytest.raises(ModelError, match=r"no tensor token_embd\.weight"):
        open_loader(write_gguf(metadata)).load_config()
