"""The model's configuration, as transformers has it, from a file's metadata."""

from __future__ import annotations

from typing import Any, Final

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from core.errors import ModelError
from plugin_loader_gguf.dequantize import FLOAT_DTYPES
from plugin_loader_gguf.gguf_file import GGUFFile
from plugin_loader_gguf.rope import rope_parameters

_CONFIGS: Final[dict[str, tuple[type[PretrainedConfig], str]]] = {
    "llama": (LlamaConfig, "LlamaForCausalLM"),
    "qwen2": (Qwen2Config, "Qwen2ForCausalLM"),
    "qwen3": (Qwen3Config, "Qwen3ForCausalLM"),
}
_SLIDING: Final = (MistralConfig, "MistralForCausalLM")
_EMBEDDING: Final = "token_embd.weight"


def build_config(file: GGUFFile, eos_token_ids: list[int]) -> PretrainedConfig:
    """The configuration. Raises `ModelError` for an architecture or a feature that is not supported.

    A file does not tell Mistral from Llama (the computation is the same), so Mistral models come as Llama, unless the
    file gives a sliding window. The dtype is that of the file's matrices if they are float16 or bfloat16; quantised
    ones are meant to be multiplied in full, so they come as float32.
    """
    config_class, architecture = _architecture(file)
    num_heads = file.require("attention.head_count")
    num_kv_heads = file.get("attention.head_count_kv", num_heads)
    if not isinstance(num_heads, int) or not isinstance(num_kv_heads, int):
        raise ModelError(f"{file.path} has head counts that differ from layer to layer, which is not supported")
    hidden_size = file.require("embedding_length")
    head_dim = file.get("attention.key_length", hidden_size // num_heads)
    if (v_head_dim := file.get("attention.value_length", head_dim)) != head_dim:
        raise ModelError(f"{file.path} has keys of {head_dim} and values of {v_head_dim}; only equal is supported")
    fields: dict[str, Any] = {
        "architectures": [architecture],
        "vocab_size": _vocab_size(file),
        "hidden_size": hidden_size,
        "intermediate_size": file.require("feed_forward_length"),
        "num_hidden_layers": file.require("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": file.require("context_length"),
        "rms_norm_eps": file.require("attention.layer_norm_rms_epsilon"),
        "rope_parameters": rope_parameters(file, head_dim),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": eos_token_ids[0] if len(eos_token_ids) == 1 else eos_token_ids or None,
        "pad_token_id": file.metadata.get("tokenizer.ggml.padding_token_id"),
        "dtype": _dtype(file),
    }
    if config_class is LlamaConfig:
        fields["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
        fields["mlp_bias"] = "blk.0.ffn_up.bias" in file.tensors
    if config_class is MistralConfig:
        fields["sliding_window"] = file.require("attention.sliding_window")
    try:
        return config_class(**fields)
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise ModelError(f"{file.path} has a configuration that transformers refuses: {error}") from error


def _architecture(file: GGUFFile) -> tuple[type[PretrainedConfig], str]:
    name = file.architecture
    if name not in _CONFIGS:
        raise ModelError(f"{file.path} is of the architecture {name!r}; supported are {', '.join(sorted(_CONFIGS))}")
    if num_experts := file.get("expert_count", 0):
        raise ModelError(f"{file.path} is a mixture of {num_experts} experts, which is not supported")
    if not file.get("attention.sliding_window"):
        return _CONFIGS[name]
    if name != "llama":
        raise ModelError(f"{file.path} has a sliding window, which is supported for the architecture llama only")
    return _SLIDING


def _vocab_size(file: GGUFFile) -> int:
    if _EMBEDDING not in file.tensors:
        raise ModelError(f"{file.path} has no tensor {_EMBEDDING}; it is not the file of a whole model")
    return file.tensors[_EMBEDDING].shape[0]


def _dtype(file: GGUFFile) -> torch.dtype:
    dtypes = {FLOAT_DTYPES.get(info.type) for info in file.tensors.values() if len(info.shape) > 1}
    for half in (torch.bfloat16, torch.float16):
        if half in dtypes and dtypes <= {half, torch.float32}:
            return half
    return torch.float32
