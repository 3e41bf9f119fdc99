"""Logits of tiny random models of every architecture equal those of transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import DynamicCache, LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config

SIZES: dict[str, Any] = {
    "vocab_size": 130,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
WINDOWED = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROPE: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {**LLAMA3, "original_max_position_embeddings": 16, "rope_theta": 5e5},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
}
CASES: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "llama-tied": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama-biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama-no-gqa": LlamaConfig(**{**SIZES, "num_key_value_heads": 4}),
    "llama-head-dim": LlamaConfig(**SIZES, head_dim=24),
    "llama-theta": LlamaConfig(**SIZES, rope_theta=500.0, rms_norm_eps=0.1),
    **{f"llama-{name}": LlamaConfig(**SIZES, rope_parameters=rope) for name, rope in ROPE.items()},
    "mistral": MistralConfig(**SIZES, sliding_window=None),
    "mistral-window": MistralConfig(**SIZES, sliding_window=7, head_dim=8),
    "qwen2": Qwen2Config(**SIZES),
    "qwen2-window": Qwen2Config(**SIZES, **WINDOWED),
    "qwen3": Qwen3Config(**SIZES, head_dim=32),
    "qwen3-tied-biases": Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True, attention_bias=True),
    "qwen3-window": Qwen3Config(**SIZES, head_dim=16, **WINDOWED),
}
TOKENS = [(37 * i + i * i) % 130 for i in range(150)]


@pytest.mark.parametrize("name", CASES)
def test_logits_of_a_whole_prompt(name: str, saved: Callable[..., Any], loaded: Callable[..., Any]) -> None:
    reference = saved(CASES[name])
    rope_type = CASES[name].rope_parameters["rope_type"]
    length, settings = (150, {"context_length": 256}) if rope_type in ("linear", "yarn") else (60, {})
    for tokens in (TOKENS[:1], TOKENS[:length]):
        logits = loaded(**settings).run(tokens)
        with torch.inference_mode():
            expected = reference(torch.tensor([tokens])).logits[0]
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4 * float(expected.std()))


@pytest.mark.parametrize("name", ["llama-yarn", "mistral-window", "qwen3"])
def test_logits_do_not_depend_on_how_a_prompt_is_cut(
    name: str, saved: Callable[..., Any], loaded: Callable[..., Any]
) -> None:
    saved(CASES[name])
    whole = loaded().run(TOKENS[:60])
    row = loaded()
    pieces = [row.run(TOKENS[start:end]) for start, end in ((0, 1), (1, 17), (17, 40), (40, 59), (59, 60))]
    torch.testing.assert_close(torch.cat(pieces), whole, rtol=1e-4, atol=1e-4 * float(whole.std()))


def test_dynamic_rope_beyond_the_original_length(saved: Callable[..., Any], loaded: Callable[..., Any]) -> None:
    """As transformers decodes: the prompt in one piece, then token by token, cached keys as they are."""
    reference = saved(LlamaConfig(**SIZES, rope_parameters={"rope_type": "dynamic", "factor": 4.0}))
    row, cache = loaded(context_length=256), DynamicCache(config=reference.config)
    pieces = [TOKENS[:50], *([token] for token in TOKENS[50:120])]
    for piece in pieces:
        logits = row.run(piece)
        with torch.inference_mode():
            # By position: transformers has renamed the cache's argument.
            expected = reference(torch.tensor([piece]), None, None, cache).logits[0]
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4 * float(expected.std()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama-biases", "qwen2", "qwen3"])
def test_half_precision_is_as_good_as_that_of_transformers(
    name: str, dtype: torch.dtype, saved: Callable[..., Any], loaded: Callable[..., Any]
) -> None:
    reference = saved(CASES[name])
    ids = torch.tensor([TOKENS[:40]])
    row = loaded(dtype=str(dtype).removeprefix("torch."))
    assert {parameter.dtype for parameter in row.model.parameters()} == {dtype}
    logits = row.run(TOKENS[:40])
    with torch.inference_mode():
        exact = reference(ids).logits[0]
        rounded = reference.to(dtype)(ids).logits[0].float()
    error, theirs = (float((got - exact).square().mean().sqrt()) for got in (logits, rounded))
    assert error < 1.5 * theirs
    assert error < 0.1 * float(exact.std())


def test_a_sharded_model(saved: Callable[..., Any], loaded: Callable[..., Any], tmp_path: Any) -> None:
    reference = saved(CASES["qwen3"], max_shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    with torch.inference_mode():
        expected = reference(torch.tensor([TOKENS[:20]])).logits[0]
    torch.testing.assert_close(loaded().run(TOKENS[:20]), expected, rtol=1e-4, atol=1e-4 * float(expected.std()))
