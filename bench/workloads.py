"""The offline workloads, as token ids, so that no tokenizer and no network takes part.

A workload is a list of (prompt token ids, output length), drawn with a fixed seed. The GPU-sized ones are those that
`RESULTS.md` compares engines with; `cpu` is small enough for two cores.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

Workload = list[tuple[list[int], int]]

MODELS: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 1024,
        "initializer_range": 0.02,
        "intermediate_size": 3072,
        "max_position_embeddings": 40960,
        "max_window_layers": 28,
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "llama-3.1-8b": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "initializer_range": 0.02,
        "intermediate_size": 14336,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": 128256,
    },
    "smollm2-135m": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 576,
        "initializer_range": 0.04,
        "intermediate_size": 1536,
        "max_position_embeddings": 8192,
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": 49152,
    },
}


def write_model(name: str, folder: Path) -> Path:
    """Write the configuration of a model, for random weights of its shapes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(MODELS[name]))
    return folder


def _ids(rng: random.Random, num_tokens: int) -> list[int]:
    return [rng.randint(10, 10000) for _ in range(num_tokens)]


def workload(name: str) -> Workload:
    """Draw a workload by name; the same at each call."""
    rng = random.Random(0)
    if name == "mixed":  # the offline benchmark that nano-vllm and mini-sglang publish
        return [(_ids(rng, rng.randint(100, 1024)), rng.randint(100, 1024)) for _ in range(256)]
    if name == "single":  # one user: latency a token
        return [(_ids(rng, 128), 256)]
    if name == "prefill":  # long prompts, one token out
        return [(_ids(rng, 4096), 1) for _ in range(64)]
    if name == "shared-prefix":  # one system prompt, many questions
        head = _ids(rng, 2048)
        return [(head + _ids(rng, 128), 64) for _ in range(512)]
    if name == "batch64":  # steady decode
        return [(_ids(rng, 512), 256) for _ in range(64)]
    if name == "cpu":  # all of it, sized for two cores
        head = _ids(rng, 64)
        return [(head + _ids(rng, rng.randint(8, 128)), rng.randint(16, 64)) for _ in range(48)]
    raise KeyError(f"no workload {name!r}; there are {', '.join(ALL)}")


ALL = ["single", "batch64", "mixed", "prefill", "shared-prefix", "cpu"]
