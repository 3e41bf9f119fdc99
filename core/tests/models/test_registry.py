"""What a configuration says of its model, and which configurations are refused."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import GPT2Config, LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from core.errors import ModelError
from core.mem_cache.geometry import KVGroupGeometry
from core.models.registry import architecture_of, kv_groups

LLAMA, MISTRAL = {"architectures": ["LlamaForCausalLM"]}, {"architectures": ["MistralForCausalLM"]}
QWEN2, QWEN3 = {"architectures": ["Qwen2ForCausalLM"]}, {"architectures": ["Qwen3ForCausalLM"]}


def test_geometry() -> None:
    config = LlamaConfig(**LLAMA, hidden_size=576, num_attention_heads=9, num_key_value_heads=3, num_hidden_layers=30)
    assert kv_groups(config) == (
        KVGroupGeometry(num_layers=30, num_qo_heads=9, num_kv_heads=3, head_dim=64, v_head_dim=64, scale=0.125),
    )


@pytest.mark.parametrize(
    ("config", "head_dim"),
    [
        (LlamaConfig(**LLAMA, hidden_size=64, num_attention_heads=4, num_key_value_heads=4, head_dim=100), 100),
        (Qwen3Config(**QWEN3, hidden_size=64, num_attention_heads=4, num_key_value_heads=4), 128),
        (Qwen2Config(**QWEN2, hidden_size=64, num_attention_heads=4, num_key_value_heads=4), 16),
    ],
)
def test_a_head_dim_is_given_or_derived(config: PretrainedConfig, head_dim: int) -> None:
    (group,) = kv_groups(config)
    assert (group.head_dim, group.v_head_dim, group.scale) == (head_dim, head_dim, head_dim**-0.5)


WINDOW: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 100}


@pytest.mark.parametrize(
    ("config", "window"),
    [
        (MistralConfig(**MISTRAL), 4096),
        (MistralConfig(**MISTRAL, sliding_window=None), None),
        (Qwen2Config(**QWEN2), None),
        (Qwen2Config(**QWEN2, sliding_window=100), None),
        (Qwen2Config(**QWEN2, **WINDOW, max_window_layers=0), 100),
        (Qwen3Config(**QWEN3, **WINDOW, max_window_layers=32, num_hidden_layers=32), None),
    ],
)
def test_windows(config: PretrainedConfig, window: int | None) -> None:
    (group,) = kv_groups(config)
    assert group.window == window


REFUSED: dict[str, tuple[PretrainedConfig, str]] = {
    "another class": (GPT2Config(**LLAMA), r"num_key_value_heads None, expected a whole number above 0"),
    "no epsilon": (
        GPT2Config(**LLAMA, num_key_value_heads=12, hidden_act="silu"),
        r"rms_norm_eps None, expected a number",
    ),
    "no length": (LlamaConfig(**LLAMA, max_position_embeddings=0), r"max_position_embeddings 0, expected"),
    "mixed layers": (
        Qwen2Config(**QWEN2, **WINDOW, max_window_layers=16),
        r"full_attention, sliding_attention with sliding_window 100.*max_window_layers",
    ),
    "activation": (LlamaConfig(**LLAMA, hidden_act="gelu"), r"hidden_act 'gelu'; only silu"),
    "heads": (LlamaConfig(**LLAMA, num_attention_heads=8, num_key_value_heads=3), r"8, expected a multiple of .* 3"),
    "odd heads": (LlamaConfig(**LLAMA, hidden_size=12, num_attention_heads=4), r"heads of 3 channels"),
    "no layers": (LlamaConfig(**LLAMA, num_hidden_layers=0), r"num_hidden_layers 0, expected a whole number above 0"),
    "rope type": (
        LlamaConfig(
            **LLAMA, rope_parameters={"rope_type": "longrope", "short_factor": [1.0] * 64, "long_factor": [1.0] * 64}
        ),
        r"'longrope' is not supported; known are default, linear, dynamic, llama3, yarn",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    config, message = REFUSED[name]
    with pytest.raises(ModelError, match=message):
        kv_groups(config)


def test_architectures() -> None:
    assert architecture_of(LlamaConfig(architectures=["Unheard", "Qwen3ForCausalLM"])) == "Qwen3ForCausalLM"
    known = "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM"
    with pytest.raises(ModelError, match=f"names MambaForCausalLM; supported are {known}"):
        architecture_of(LlamaConfig(architectures=["MambaForCausalLM"]))
    with pytest.raises(ModelError, match="names no architecture"):
        architecture_of(LlamaConfig())
