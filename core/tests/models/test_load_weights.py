"""Every parameter is filled exactly once, or the model is refused by the names of the tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from core.errors import ModelError
from core.layers.ops import TorchLayerOps
from core.models.causal_lm import CausalLM
from core.models.registry import build_model

SIZES: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
CONFIGS: dict[str, PretrainedConfig] = {
    "biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, architectures=["LlamaForCausalLM"]),
    "tied": Qwen2Config(**SIZES, tie_word_embeddings=True, architectures=["Qwen2ForCausalLM"]),
    "norms": Qwen3Config(**SIZES, architectures=["Qwen3ForCausalLM"]),
}


def build(config: PretrainedConfig, dtype: torch.dtype = torch.float32) -> CausalLM:
    return build_model(config, max_context_len=8, ops=TorchLayerOps(), dtype=dtype, device=torch.device("cpu"))


def random_weights(model: CausalLM) -> dict[str, torch.Tensor]:
    return {name: torch.randn(target.shape) for name, target in model.weight_targets().items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_targets_cover_every_element_once(name: str) -> None:
    model = build(CONFIGS[name])
    for parameter in model.parameters():
        assert not parameter.requires_grad
        parameter.zero_()
    for target in model.weight_targets().values():
        target.add_(1)
    for key, parameter in model.named_parameters():
        assert bool((parameter == 1).all()), key


@pytest.mark.parametrize("name", CONFIGS)
def test_names_are_those_of_transformers(name: str, saved: Callable[..., Any]) -> None:
    config = CONFIGS[name]
    theirs = set(saved(config).state_dict())
    redundant = {"lm_head.weight"} if config.tie_word_embeddings else set()
    assert set(build(config).weight_targets()) == theirs - redundant


def test_the_dtype_is_converted() -> None:
    model = build(CONFIGS["norms"], torch.bfloat16)
    weights = random_weights(model)
    model.load_weights((name, tensor.double()) for name, tensor in weights.items())
    for name, target in model.weight_targets().items():
        assert target.dtype == torch.bfloat16
        assert torch.equal(target, weights[name].bfloat16()), name


def test_missing_and_unexpected_tensors_are_named() -> None:
    model = build(CONFIGS["norms"])
    weights = random_weights(model)
    del weights["model.layers.1.self_attn.k_proj.weight"]
    weights["model.layers.1.self_attn.k_proj.bias"] = torch.zeros(8)
    with pytest.raises(ModelError) as error:
        model.load_weights(weights.items())
    assert "1 missing (model.layers.1.self_attn.k_proj.weight)" in str(error.value)
    assert "1 unexpected (model.layers.1.self_attn.k_proj.bias)" in str(error.value)


def test_a_tensor_of_another_shape_is_named() -> None:
    model = build(CONFIGS["norms"])
    weights = random_weights(model) | {"model.norm.weight": torch.zeros(1)}
    with pytest.raises(ModelError, match=r"model\.norm\.weight has the shape \[1\].*asks for \[16\]"):
        model.load_weights(weights.items())


def test_a_tensor_twice_is_refused() -> None:
    model = build(CONFIGS["norms"])
    weights = list(random_weights(model).items())
    with pytest.raises(ModelError, match=r"model\.embed_tokens\.weight is there twice"):
        model.load_weights([*weights, weights[0]])


def test_what_the_model_has_already_is_ignored() -> None:
    model = build(CONFIGS["tied"])
    weights = random_weights(model)
    surplus = {
        "lm_head.weight": weights["model.embed_tokens.weight"],
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(2),
    }
    model.load_weights((weights | surplus).items())


def test_an_output_matrix_is_needed_unless_tied() -> None:
    model = build(CONFIGS["biases"])
    weights = random_weights(model)
    del weights["lm_head.weight"]
    with pytest.raises(ModelError, match=r"missing \(lm_head\.weight\)"):
        model.load_weights(weights.items())
