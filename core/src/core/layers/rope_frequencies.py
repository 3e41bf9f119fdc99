"""The inverse frequencies of every RoPE variant, in float32.

RoPE: Su et al., 2021. `linear`: Chen et al., 2023. `dynamic`: NTK-aware scaling, by the community, 2023. `yarn`: Peng
et al., 2023. `llama3`: Llama Team, 2024. How the settings are read follows transformers.
"""

from __future__ import annotations

import math

import torch

from core.layers.rope_settings import RopeSettings


def inverse_frequencies(settings: RopeSettings, head_dim: int, positions: torch.Tensor) -> torch.Tensor:
    """What a position is multiplied with to give the angles of a head's channels.

    Args:
        settings: of the model.
        head_dim: size of a head.
        positions: `[n]` float32, on any device.

    Returns:
        Float32 on the device of `positions`: `[head_dim / 2]`, or for `dynamic` one row a position,
        `[n, head_dim / 2]`.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    wavelengths = settings.theta**exponents
    match settings.rope_type:
        case "linear":
            frequencies = 1.0 / wavelengths / settings.factor
        case "dynamic":
            return _dynamic(settings, exponents.to(positions.device), positions)
        case "llama3":
            frequencies = _llama3(settings, 1.0 / wavelengths)
        case "yarn":
            frequencies = _yarn(settings, wavelengths)
        case _:
            frequencies = 1.0 / wavelengths
    return frequencies.to(positions.device)


def attention_scaling(settings: RopeSettings) -> float:
    """The factor on cos and sin; 1 except for `yarn`, which so sharpens the softmax of a stretched model."""
    if settings.rope_type != "yarn":
        return 1.0
    if settings.values.get("attention_factor") is not None:
        return settings.number("attention_factor")
    factor = settings.factor

    def mscale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if settings.values.get("mscale") and settings.values.get("mscale_all_dim"):
        return mscale(settings.number("mscale")) / mscale(settings.number("mscale_all_dim"))
    return mscale(1.0)


def _dynamic(settings: RopeSettings, exponents: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Beyond the original length the base grows with the length; here, with the token's own position.

    That is the rotation that a token gets when it is decoded after its predecessors, whose cached keys keep theirs. It
    depends on nothing but the position, so that a key may be shared between requests, and an answer does not depend
    on how its prompt was cut into chunks. A prompt beyond the original length, seen by transformers in one piece,
    gets the base of its last position for all of its tokens instead.
    """
    factor, original, dim = settings.factor, settings.max_position_embeddings, 2 * len(exponents)
    seq_lens = (positions + 1).clamp(min=original)
    bases = settings.theta * (factor * seq_lens / original - (factor - 1)) ** (dim / (dim - 2))
    return 1.0 / bases[:, None] ** exponents


def _llama3(settings: RopeSettings, plain: torch.Tensor) -> torch.Tensor:
    """Long wavelengths are stretched, short ones kept, those between blended."""
    low, high = settings.number("low_freq_factor"), settings.number("high_freq_factor")
    wavelengths = 2 * math.pi / plain
    smooth = ((settings.original_max_position_embeddings / wavelengths - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * plain / settings.factor + smooth * plain


def _yarn(settings: RopeSettings, wavelengths: torch.Tensor) -> torch.Tensor:
    """Channels that turn often within the original length are kept, those that hardly turn are stretched."""
    num_channels = len(wavelengths)
    dim = 2 * num_channels

    def channel(turns: float) -> float:
        """The channel that turns so often within the original length."""
        length = settings.original_max_position_embeddings
        return dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(settings.theta))

    low = channel(float(settings.values.get("beta_fast") or 32))
    high = channel(float(settings.values.get("beta_slow") or 1))
    if settings.values.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    kept = 1 - ((torch.arange(num_channels, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    return 1.0 / (settings.factor * wavelengths) * (1 - kept) + 1.0 / wavelengths * kept
