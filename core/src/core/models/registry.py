"""Which architectures there are, and how their models are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from transformers import PretrainedConfig

from core.errors import ModelError
from core.layers.ops import LayerOps
from core.layers.placement import Placement
from core.mem_cache.geometry import KVGroupGeometry
from core.models.causal_lm import CausalLM
from core.models.llama import LlamaForCausalLM
from core.models.llama_shape import LlamaShape, read_llama, read_mistral, read_qwen2, read_qwen3

LLAMA_FAMILY: Final[dict[str, Callable[[PretrainedConfig], LlamaShape]]] = {
    "LlamaForCausalLM": read_llama,
    "MistralForCausalLM": read_mistral,
    "Qwen2ForCausalLM": read_qwen2,
    "Qwen3ForCausalLM": read_qwen3,
}
"""Architecture, as `config.json` names it -> how its configuration is read."""


def architecture_of(config: PretrainedConfig) -> str:
    """The first known of the architectures that a configuration names. Raises `ModelError` if there is none."""
    names = list(config.architectures or [])
    for name in names:
        if name in LLAMA_FAMILY:
            return str(name)
    got = ", ".join(map(str, names)) or "no architecture"
    raise ModelError(f"config.json names {got}; supported are {', '.join(sorted(LLAMA_FAMILY))}")


def kv_groups(config: PretrainedConfig) -> tuple[KVGroupGeometry, ...]:
    """The KV groups of a model, from its configuration alone. Raises `ModelError` if that cannot be served."""
    return (LLAMA_FAMILY[architecture_of(config)](config).geometry(),)


def build_model(
    config: PretrainedConfig, *, max_context_len: int, ops: LayerOps, dtype: torch.dtype, device: torch.device
) -> CausalLM:
    """A model made on `device`, whose weights are undefined until a `WeightLoader` has filled them.

    Args:
        config: of the model.
        max_context_len: positions run from 0 below this.
        ops: what the layers compute with between their matrix products.
        dtype: of weights and activations.
        device: of all parameters.

    Raises:
        ModelError: the configuration cannot be served.
    """
    shape = LLAMA_FAMILY[architecture_of(config)](config)
    model = LlamaForCausalLM(shape, max_context_len=max_context_len, ops=ops, placement=Placement(dtype, device))
    return model.eval()
