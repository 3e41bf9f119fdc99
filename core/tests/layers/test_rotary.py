"""cos and sin of every RoPE variant equal those of transformers; both spellings of the settings are read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from core.errors import ModelError
from core.layers.placement import Placement
from core.layers.rope_settings import read_rope_settings
from core.layers.rotary import RotaryTable

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1e6}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "theta": {"rope_type": "default", "rope_theta": 130000.0},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": LLAMA3,
    "yarn": YARN,
    "yarn-attention-factor": {**YARN, "attention_factor": 1.3},
    "yarn-mscale": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0},
    "yarn-betas": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False},
    "yarn-short": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 6},
    "yarn-shrinking": {**YARN, "factor": 0.5},
}


def table(config: Any, max_positions: int, dtype: torch.dtype = torch.float32) -> RotaryTable:
    placement = Placement(dtype, torch.device("cpu"))
    return RotaryTable(
        read_rope_settings(config), head_dim=config.head_dim, max_positions=max_positions, placement=placement
    )


def expect_equal(config: LlamaConfig, ours: RotaryTable, positions: torch.Tensor, dtype: torch.dtype) -> None:
    expected_cos, expected_sin = LlamaRotaryEmbedding(config)(torch.empty(0, dtype=dtype), positions[None])
    cos, sin = ours.lookup(positions)
    half = config.head_dim // 2
    assert cos.dtype == sin.dtype == dtype
    assert cos.shape == sin.shape == (len(positions), 1, config.head_dim)
    torch.testing.assert_close(cos[:, 0], expected_cos[0])
    torch.testing.assert_close(sin[:, 0, half:], expected_sin[0, :, half:])
    torch.testing.assert_close(sin[:, 0, :half], -expected_sin[0, :, :half])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", VARIANTS)
def test_angles_equal_those_of_transformers(name: str, dtype: torch.dtype) -> None:
    config = LlamaConfig(head_dim=128, max_position_embeddings=131072, rope_parameters=dict(VARIANTS[name]))
    positions = torch.tensor([9000, 0, 1, 2, 3, 100, 4095, 8191])
    expect_equal(config, table(config, 9001, dtype), positions, dtype)


def test_dynamic_angles_are_those_of_a_token_decoded_at_its_position() -> None:
    parameters = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    config = LlamaConfig(head_dim=64, max_position_embeddings=32, rope_parameters=parameters)
    ours = table(config, 128)
    # A prompt of the original length, then one token after the other.
    expect_equal(config, ours, torch.arange(32), torch.float32)
    for position in (32, 33, 90, 127):
        expect_equal(config, ours, torch.tensor([position]), torch.float32)


@pytest.mark.parametrize("name", ["linear", "llama3", "yarn", "yarn-mscale"])
def test_the_older_spelling_is_the_same(name: str) -> None:
    new = LlamaConfig(head_dim=64, max_position_embeddings=131072, rope_parameters=dict(VARIANTS[name]))
    scaling = {key: value for key, value in VARIANTS[name].items() if key not in ("rope_type", "rope_theta")}
    # transformers' classes turn it into the newer one; those of others need not.
    old = SimpleNamespace(
        head_dim=64,
        max_position_embeddings=131072,
        rope_theta=VARIANTS[name].get("rope_theta", 10000.0),
        rope_scaling={"type": VARIANTS[name]["rope_type"], **scaling},
    )
    for got, expected in zip(
        table(old, 100).lookup(torch.arange(100)), table(new, 100).lookup(torch.arange(100)), strict=True
    ):
        assert torch.equal(got, expected)


@pytest.mark.parametrize(
    ("parameters", "usual", "longest"),
    [
        ({"rope_type": "default"}, 2048, 2048),
        ({**LLAMA3, "original_max_position_embeddings": 256}, 2048, 2048),
        ({"rope_type": "linear", "factor": 4.0}, 2048, 8192),
        ({"rope_type": "dynamic", "factor": 2.5}, 2048, 5120),
        ({"rope_type": "yarn", "factor": 4.0}, 8192, 8192),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}, 2048, 2048),
        ({"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 512}, 2048, 2048),
    ],
)
def test_context_lengths(parameters: dict[str, Any], usual: int, longest: int) -> None:
    config = LlamaConfig(max_position_embeddings=2048, rope_parameters={"rope_theta": 1e4, **parameters})
    settings = read_rope_settings(config)
    assert (settings.usual_context, settings.longest_context) == (usual, longest)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rope_type": "linear"}, r"'linear' with factor None, expected a number"),
        ({"rope_type": "linear", "factor": "4"}, r"'linear' with factor '4', expected a number"),
        ({"rope_type": "su", "factor": 4.0}, r"'su' is not supported; known are default, linear"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, r"partial_rotary_factor 0.5 is not supported"),
        ({"full_attention": {"rope_type": "default"}}, r"different RoPE for full_attention"),
    ],
)
def test_what_is_refused(parameters: dict[str, Any], message: str) -> None:
    config = LlamaConfig()
    object.__setattr__(config, "rope_parameters", parameters)
    with pytest.raises(ModelError, match=message):
        table(config, 10)
