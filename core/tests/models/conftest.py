"""Tiny random models, and an attention without pages: one row, dense, in float32."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto import AutoModelForCausalLM

from core.attention.backend import AttentionBackend
from core.attention.radix_attention import GroupForward, RadixAttention
from core.config import ModelConfig
from core.layers.ops import TorchLayerOps
from core.loading.model_info import load_model_info
from core.loading.safetensors_loader import SafetensorsLoader
from core.loading.weight_loader import WeightLoaderContext
from core.mem_cache.geometry import KVGroupGeometry
from core.mem_cache.kv_pool import KVLayout, KVPool
from core.model_executor.forward_batch import ForwardBatch
from core.model_executor.forward_mode import ForwardMode
from core.models.causal_lm import CausalLM
from core.models.registry import build_model
from core.specs import NoOptions

CPU = torch.device("cpu")


class DensePool(KVPool):
    """Slot s of a layer is the token at position s of the one row."""

    def __init__(self, geometry: KVGroupGeometry, max_len: int) -> None:
        heads, dim = geometry.num_kv_heads, geometry.head_dim
        self.keys = torch.full((geometry.num_layers, max_len, heads, dim), torch.nan)
        self.values = torch.full((geometry.num_layers, max_len, heads, dim), torch.nan)

    @classmethod
    def bytes_per_page(cls, geometry: KVGroupGeometry, page_size: int, dtype: torch.dtype) -> int:
        raise AssertionError("nobody asks")

    @property
    def layout(self) -> KVLayout:
        raise AssertionError("nobody asks")

    def set_kv_buffer(self, layer_id: int, out_cache_loc: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        self.keys[layer_id, out_cache_loc] = k.float()
        self.values[layer_id, out_cache_loc] = v.float()

    def get_kv_buffer(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.keys[layer_id], self.values[layer_id]


class DenseAttention(AttentionBackend):
    """Every query against every key that it may see."""

    def __init__(self, geometry: KVGroupGeometry, pool: DensePool) -> None:
        self.geometry, self.pool = geometry, pool

    def init_forward_metadata(self, batch: ForwardBatch) -> None:
        """Needs none."""

    def forward_decode(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: RadixAttention, batch: ForwardBatch
    ) -> torch.Tensor:
        return self.forward_extend(q, k, v, layer, batch)

    def forward_extend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: RadixAttention, batch: ForwardBatch
    ) -> torch.Tensor:
        length, geometry = int(batch.seq_lens[0]), self.geometry
        keys, values = (buffer[:length] for buffer in self.pool.get_kv_buffer(layer.layer_id))
        ratio = geometry.num_qo_heads // geometry.num_kv_heads
        keys, values = keys.repeat_interleave(ratio, 1), values.repeat_interleave(ratio, 1)
        scores = torch.einsum("qhd,khd->hqk", q.float(), keys) * geometry.scale
        distance = batch.positions[:, None] - torch.arange(length)
        visible = (distance >= 0) & (distance < (geometry.window or length))
        scores = scores.masked_fill(~visible, -torch.inf)
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1), values).to(q.dtype)


class Sequence:
    """One row of a model."""

    def __init__(self, model: CausalLM, geometry: KVGroupGeometry, max_len: int = 512) -> None:
        self.model, self.length = model, 0
        self.pool = DensePool(geometry, max_len)
        self.backend = DenseAttention(geometry, self.pool)

    @torch.inference_mode()
    def run(self, token_ids: list[int]) -> torch.Tensor:
        """Append tokens; their logits, `[n, vocab_size]`."""
        positions = torch.arange(self.length, self.length + len(token_ids))
        self.length += len(token_ids)
        batch = ForwardBatch(
            forward_mode=ForwardMode.EXTEND,
            bs=1,
            num_tokens=len(token_ids),
            input_ids=torch.tensor(token_ids),
            positions=positions,
            req_pool_indices=torch.tensor([1]),
            seq_lens=torch.tensor([self.length], dtype=torch.int32),
            out_cache_loc=positions,
        )
        groups = (GroupForward(self.backend, self.pool, batch),)
        return self.model.compute_logits(self.model(batch.input_ids, positions, groups))


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[PretrainedConfig], PreTrainedModel]:
    """Makes a random float32 model, biases and norms too, and writes it to `tmp_path`."""

    def save(config: PretrainedConfig, **options: Any) -> PreTrainedModel:
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(1.0 if parameter.dim() == 1 else 0.0, 0.3)
        model.save_pretrained(tmp_path, **options)
        return model

    return save


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., Sequence]:
    """Loads the model in `tmp_path` as the engine does, and starts a row of it."""

    def load(**settings: Any) -> Sequence:
        loader = SafetensorsLoader(WeightLoaderContext(tmp_path, NoOptions()))
        info = load_model_info(loader, ModelConfig(model=str(tmp_path), **settings))
        dtype = getattr(torch, info.dtype)
        model = build_model(
            info.hf_config, max_context_len=info.max_context_len, ops=TorchLayerOps(), dtype=dtype, device=CPU
        )
        loader.load_into(model)
        (geometry,) = info.kv_groups
        return Sequence(model, geometry)

    return load
