"""`LlamaShape`: one reading of the configurations of the Llama family, in which the architectures differ by values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import PretrainedConfig

from core.errors import ModelError
from core.layers.rope_settings import RopeSettings, read_rope_settings
from core.mem_cache.geometry import KVGroupGeometry

_FULL, _WINDOW = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaShape:
    """Sizes in elements.

    Attributes:
        intermediate_size: width of the feed-forward layers.
        window: sliding window in tokens, the query's own included, or None.
        qkv_bias: whether the query, key and value projections have a bias.
        o_bias: whether the attention's output projection has one.
        mlp_bias: whether the feed-forward projections have one.
        qk_norm: whether each query's and key's head is normalised before it is rotated.
        tied: whether the output matrix is the embedding.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeSettings
    window: int | None
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied: bool

    def geometry(self) -> KVGroupGeometry:
        """Of the one KV group."""
        return KVGroupGeometry(
            num_layers=self.num_layers,
            num_qo_heads=self.num_qo_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            v_head_dim=self.head_dim,
            scale=self.head_dim**-0.5,
            window=self.window,
        )


def read_llama(config: PretrainedConfig) -> LlamaShape:
    """Llama and SmolLM2: biases as configured, no window."""
    bias = _flag(config, "attention_bias")
    return _read(config, window=None, qkv_bias=bias, o_bias=bias, mlp_bias=_flag(config, "mlp_bias"))


def read_mistral(config: PretrainedConfig) -> LlamaShape:
    """Mistral: no biases; `sliding_window`, where given, holds for every layer."""
    return _read(config, window=_window(config))


def read_qwen2(config: PretrainedConfig) -> LlamaShape:
    """Qwen2 and Qwen2.5: biased query, key and value projections; windows by `use_sliding_window`."""
    return _read(config, window=_window(config), qkv_bias=True)


def read_qwen3(config: PretrainedConfig) -> LlamaShape:
    """Qwen3: normalised query and key heads; windows by `use_sliding_window`."""
    bias = _flag(config, "attention_bias")
    return _read(config, window=_window(config), qkv_bias=bias, o_bias=bias, qk_norm=True)


def _read(
    config: PretrainedConfig,
    *,
    window: int | None,
    qkv_bias: bool = False,
    o_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
) -> LlamaShape:
    num_qo_heads = _positive(config, "num_attention_heads")
    num_kv_heads = _positive(config, "num_key_value_heads")
    if num_qo_heads % num_kv_heads:
        raise ModelError(
            f"config.json has num_attention_heads {num_qo_heads}, expected a multiple of "
            f"num_key_value_heads {num_kv_heads}"
        )
    activation = getattr(config, "hidden_act", None)
    if activation not in ("silu", "swish"):
        raise ModelError(f"config.json has hidden_act {activation!r}; only silu is supported")
    eps = getattr(config, "rms_norm_eps", None)
    if not isinstance(eps, float):
        raise ModelError(f"config.json has rms_norm_eps {eps!r}, expected a number such as 1e-6")
    hidden_size = _positive(config, "hidden_size")
    head_dim = int(getattr(config, "head_dim", None) or hidden_size // num_qo_heads)
    if head_dim % 2:
        raise ModelError(f"config.json gives heads of {head_dim} channels; RoPE needs an even number")
    return LlamaShape(
        vocab_size=_positive(config, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=_positive(config, "intermediate_size"),
        num_layers=_positive(config, "num_hidden_layers"),
        num_qo_heads=num_qo_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=eps,
        rope=read_rope_settings(config),
        window=window,
        qkv_bias=qkv_bias,
        o_bias=o_bias,
        mlp_bias=mlp_bias,
        qk_norm=qk_norm,
        tied=_flag(config, "tie_word_embeddings"),
    )


def _flag(config: PretrainedConfig, key: str) -> bool:
    return bool(getattr(config, key, False))


def _positive(config: PretrainedConfig, key: str) -> int:
    value: Any = getattr(config, key, None)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"config.json has {key} {value!r}, expected a whole number above 0")
    return value


def _window(config: PretrainedConfig) -> int | None:
    """The sliding window that all layers share, or None. Layers of several kinds are refused."""
    window: int | None = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or [_FULL if window is None else _WINDOW])
    if kinds == {_FULL}:
        return None
    if kinds == {_WINDOW} and window is not None:
        return window
    raise ModelError(
        f"config.json has layers of the kinds {', '.join(sorted(kinds))} with sliding_window {window}: only models "
        "whose layers all attend to everything, or all within one window, are supported (see layer_types, "
        "use_sliding_window and max_window_layers)"
    )
