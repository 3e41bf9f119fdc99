"""`ModelInfo`: what is known of a model before its weights are read."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from transformers import PretrainedConfig

from core.config import ModelConfig
from core.errors import ConfigError, ModelError
from core.layers.rope_settings import RopeSettings, read_rope_settings
from core.loading.weight_loader import WeightLoader
from core.mem_cache.geometry import KVGroupGeometry
from core.models.registry import architecture_of, kv_groups

logger = logging.getLogger(__name__)

DTYPES = tuple(name for name in get_args(ModelConfig.model_fields["dtype"].annotation) if name != "auto")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Picklable: the parent process makes it, and every child gets it.

    Attributes:
        path: the model's folder or file.
        hf_config: its configuration, as transformers has it.
        architecture: one of those in `core.models.registry`.
        dtype: of weights and activations, by torch's name without the prefix.
        max_context_len: most tokens of a request.
        vocab_size: ids run from 0 below this.
        hidden_size: size of an activation.
        kv_groups: one geometry for each KV group.
        eos_token_ids: ids that end a request.
        generation_defaults: the model's `generation_config.json`.
    """

    path: Path
    hf_config: PretrainedConfig
    architecture: str
    dtype: str
    max_context_len: int
    vocab_size: int
    hidden_size: int
    kv_groups: tuple[KVGroupGeometry, ...]
    eos_token_ids: tuple[int, ...]
    generation_defaults: dict[str, Any]


def load_model_info(loader: WeightLoader, config: ModelConfig) -> ModelInfo:
    """Read a model's configuration; reads no weights.

    Raises:
        ModelError: the model cannot be served.
        ConfigError: it cannot be served as asked.
    """
    hf_config = loader.load_config()
    architecture = architecture_of(hf_config)
    if getattr(hf_config, "quantization_config", None) is not None:
        raise ModelError(
            f"{loader.context.path} holds quantised weights (config.json has quantization_config), which are not "
            "supported; use the model's bfloat16 form, or a GGUF file"
        )
    groups = kv_groups(hf_config)
    defaults = loader.load_generation_config()
    return ModelInfo(
        path=loader.context.path,
        hf_config=hf_config,
        architecture=architecture,
        dtype=_own_dtype(hf_config) if config.dtype == "auto" else config.dtype,
        max_context_len=_context_len(read_rope_settings(hf_config), config.context_length),
        vocab_size=hf_config.vocab_size,
        hidden_size=hf_config.hidden_size,
        kv_groups=groups,
        eos_token_ids=_eos_token_ids(hf_config, defaults),
        generation_defaults=defaults,
    )


def _own_dtype(hf_config: PretrainedConfig) -> str:
    name = str(getattr(hf_config, "dtype", None) or torch.float32).removeprefix("torch.")
    if name not in DTYPES:
        raise ModelError(f"The model's own dtype is {name}; choose one of {', '.join(DTYPES)} with --dtype")
    return name


def _context_len(rope: RopeSettings, wanted: int | None) -> int:
    """The model's own length, a shorter one, or as much of a longer one as its RoPE scaling is meant for."""
    own, longest = rope.usual_context, rope.longest_context
    if wanted is None:
        return own
    if wanted > longest:
        raise ConfigError(
            f"--context-length {wanted} was asked for, the model takes {longest} tokens at most "
            f"(max_position_embeddings {rope.max_position_embeddings}, RoPE of type {rope.rope_type}"
            f"{f' by {rope.factor:g}' if rope.rope_type != 'default' else ''})"
        )
    if rope.rope_type == "dynamic" and wanted > own:
        logger.warning(
            "dynamic RoPE beyond %d tokens: each token is rotated for its own position, so that prompts can share a "
            "cache; answers to longer prompts differ from those of transformers, which rotates a prompt as a whole",
            own,
        )
    return wanted


def _eos_token_ids(hf_config: PretrainedConfig, defaults: dict[str, Any]) -> tuple[int, ...]:
    """As transformers has it: the generation config decides, and the model's only where that names none."""
    ids = defaults.get("eos_token_id")
    if ids is None:
        ids = getattr(hf_config, "eos_token_id", None)
    if ids is None:
        return ()
    return tuple(dict.fromkeys(ids)) if isinstance(ids, list) else (int(ids),)
