"""Names and row order of a llama-family model's tensors: the file's spelling into transformers'."""

from __future__ import annotations

import re
from typing import Final

import torch

from core.errors import ModelError
from plugin_loader_gguf.gguf_file import GGUFFile

_TOP: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_IN_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Frequencies of the rotary embedding, which the configuration says in another form.
_NOT_WEIGHTS: Final = re.compile(r"rope_freqs\.weight|blk\.\d+\.attn_rot_embd\.weight")
_NAME: Final = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")
_ROTATED: Final = re.compile(r"blk\.\d+\.attn_([qk])\.(?:weight|bias)")


def transformers_name(file: GGUFFile, name: str) -> str | None:
    """The tensor's name in transformers' spelling; None for one that is no weight.

    Raises `ModelError` for a name that these architectures do not have: leaving it out would change the answers.
    """
    if _NOT_WEIGHTS.fullmatch(name):
        return None
    match = _NAME.fullmatch(name)
    if match is not None:
        layer, part, kind = match.groups()
        if layer is None and part in _TOP:
            return f"{_TOP[part]}.{kind}"
        if layer is not None and part in _IN_LAYER:
            return f"model.layers.{layer}.{_IN_LAYER[part]}.{kind}"
    raise ModelError(
        f"{file.path} has a tensor {name}, which is no part of the architecture {file.architecture} as it is known here"
    )


def restore_rows(file: GGUFFile, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Undo the converter's reordering of rows, if there was one.

    For the architecture `llama` the converter interleaves the two halves of each head's query and key rows, because
    llama.cpp rotates neighbouring rows there; transformers rotates row i with row i + head_dim / 2. The result is a new
    tensor where the order changes, else `tensor` itself.
    """
    match = _ROTATED.fullmatch(name) if file.architecture == "llama" else None
    if match is None:
        return tensor
    num_heads = file.require("attention.head_count")
    if match[1] == "k":
        num_heads = file.get("attention.head_count_kv", num_heads)
    pairs = tensor.view(num_heads, tensor.shape[0] // num_heads // 2, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape)
