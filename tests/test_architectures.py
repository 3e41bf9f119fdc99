"""Tiny random models of every architecture and RoPE variant: greedy answers equal transformers'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from reference import check
from transformers import LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config
from transformers.models.auto import AutoModelForCausalLM

from core import Engine, SamplingParams

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
ROPE: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64},
}
CASES: dict[str, PretrainedConfig] = {
    **{
        f"llama-{name}": LlamaConfig(**SIZES, rope_parameters=rope)
        for name, rope in ROPE.items()
        if name != "dynamic"  # see test_dynamic_rope
    },
    "llama-biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "llama-head-dim": LlamaConfig(**SIZES, head_dim=16),
    "mistral": MistralConfig(**SIZES, sliding_window=None),
    "mistral-window": MistralConfig(**SIZES, sliding_window=24),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "qwen3-tied": Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True),
}
PROMPTS = [[5], [7, 8, 9], list(range(3, 43)), [(11 * i) % 90 + 3 for i in range(100)]]


def save(config: PretrainedConfig, folder: Path) -> Any:
    """A random model of `config`, written to `folder`."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("name", CASES)
def test_greedy_answers_equal_transformers(name: str, page_size: int, tmp_path: Path) -> None:
    model = save(CASES[name], tmp_path)
    params = SamplingParams(temperature=0.0, max_tokens=80, ignore_eos=True)
    with Engine(model=str(tmp_path), page_size=page_size, chunked_prefill_size=48, max_total_tokens=4096) as engine:
        for _ in ("cold", "warm"):
            for prompt, result in zip(PROMPTS, engine.generate(PROMPTS, params), strict=True):
                check(model, prompt, result.token_ids)


def test_dynamic_rope_equals_transformers_generate(tmp_path: Path) -> None:
    """The base grows with each token beyond the original length, so transformers has to run token by token too."""
    config = LlamaConfig(**{**SIZES, "max_position_embeddings": 64}, rope_parameters=ROPE["dynamic"])
    model = save(config, tmp_path)
    config.max_position_embeddings = 64
    prompt = [(11 * i) % 90 + 3 for i in range(50)]
    ids = torch.tensor([prompt])
    options: dict[str, Any] = {"max_new_tokens": 14, "min_new_tokens": 14, "do_sample": False, "eos_token_id": None}
    wanted = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(prompt) :].tolist()
    params = SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True)
    with Engine(model=str(tmp_path), max_total_tokens=1024) as engine:
        (result,) = engine.generate(prompt, params)
    assert result.token_ids == wanted
