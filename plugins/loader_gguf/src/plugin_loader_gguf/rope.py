"""The rotary embedding's parameters, as transformers' `rope_parameters`, from a file's metadata."""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from core.errors import ModelError
from plugin_loader_gguf.dequantize import read_tensor
from plugin_loader_gguf.gguf_file import GGUFFile

DEFAULT_THETA: Final = 10000.0
# Llama 3.1 fixed these; files with scaled frequencies do not say them.
_LOW_FREQ_FACTOR: Final = 1.0
_HIGH_FREQ_FACTOR: Final = 4.0
_ORIGINAL_LENGTHS: Final = (8192, *(1 << power for power in range(10, 19) if power != 13))
_YARN_BETAS: Final = {"beta_fast": "rope.scaling.yarn_beta_fast", "beta_slow": "rope.scaling.yarn_beta_slow"}


def rope_parameters(file: GGUFFile, head_dim: int) -> dict[str, Any]:
    """`rope_parameters` of the model. Raises `ModelError` for a scaling that is not default, linear, yarn or llama3."""
    if (rotated := file.get("rope.dimension_count", head_dim)) != head_dim:
        raise ModelError(f"{file.path} rotates {rotated} of {head_dim} dimensions of a head; only all are supported")
    theta = float(file.get("rope.freq_base", DEFAULT_THETA))
    if "rope_freqs.weight" in file.tensors:
        return _llama3(file, theta, head_dim)
    kind = file.get("rope.scaling.type", "none")
    factor = float(file.get("rope.scaling.factor", 0.0))
    if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        return {"rope_type": "default", "rope_theta": theta}
    if kind == "linear":
        return {"rope_type": "linear", "rope_theta": theta, "factor": factor}
    if kind == "yarn":
        return _yarn(file, theta, factor)
    raise ModelError(f"{file.path} has rope.scaling.type {kind!r}; supported are none, linear and yarn")


def _yarn(file: GGUFFile, theta: float, factor: float) -> dict[str, Any]:
    if factor <= 1:
        raise ModelError(f"{file.path} has rope.scaling.type yarn with the factor {factor}; expected more than 1")
    original = file.get("rope.scaling.original_context_length") or file.require("context_length")
    parameters = {
        "rope_type": "yarn",
        "rope_theta": theta,
        "factor": factor,
        "original_max_position_embeddings": int(original),
    }
    for name, key in _YARN_BETAS.items():
        if (beta := file.get(key)) is not None:
            parameters[name] = float(beta)
    # In the file it multiplies YaRN's own scale of the logits; in transformers it stands for the product.
    attention_factor = file.get("rope.scaling.attn_factor")
    if attention_factor is not None and attention_factor != 1:
        parameters["attention_factor"] = float(attention_factor) * (0.1 * math.log(factor) + 1)
    return parameters


def _llama3(file: GGUFFile, theta: float, head_dim: int) -> dict[str, Any]:
    """The parameters whose frequencies the file gives: it has a divisor for each frequency and nothing else."""
    divisors = read_tensor(file, file.tensors["rope_freqs.weight"]).double()
    factor = round(float(divisors.max()), 4)
    for original in _ORIGINAL_LENGTHS:
        expected = _llama3_divisors(theta, head_dim, factor, original)
        if expected.shape == divisors.shape and torch.allclose(expected, divisors, rtol=1e-4):
            return {
                "rope_type": "llama3",
                "rope_theta": theta,
                "factor": factor,
                "low_freq_factor": _LOW_FREQ_FACTOR,
                "high_freq_factor": _HIGH_FREQ_FACTOR,
                "original_max_position_embeddings": original,
            }
    raise ModelError(
        f"{file.path} scales its rotary frequencies by rope_freqs.weight ({len(divisors)} divisors, up to {factor}) "
        "in a way that is not Llama 3's; supported is a low_freq_factor of 1 and a high_freq_factor of 4"
    )


def _llama3_divisors(theta: float, head_dim: int, factor: float, original: int) -> torch.Tensor:
    """float64 [head_dim / 2]. The scheme is Meta's (llama-models, `apply_scaling`)."""
    wavelengths = 2 * math.pi * theta ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    share = (original / wavelengths - _LOW_FREQ_FACTOR) / (_HIGH_FREQ_FACTOR - _LOW_FREQ_FACTOR)
    share = share.clamp(0, 1)
    return 1 / ((1 - share) / factor + share)
