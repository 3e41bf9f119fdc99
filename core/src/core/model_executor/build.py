"""Builds a `ModelRunner` from what the parent process decided."""

from __future__ import annotations

import logging
import time
from typing import Any, cast

import torch

from core.attention.backend import AttentionBackend, BackendContext
from core.config import EngineConfig
from core.layers.ops import TorchLayerOps
from core.loading.model_info import ModelInfo
from core.loading.open_loader import open_loader
from core.mem_cache.device_page_table import PageTable
from core.mem_cache.geometry import KVGroupGeometry
from core.mem_cache.kv_pool import KVPool, KVPoolContext
from core.mem_cache.memory_plan import available_bytes, plan_num_pages
from core.model_executor.kv_group import KVGroup
from core.model_executor.model_runner import ModelRunner
from core.model_executor.worker import WorkerLimits
from core.models.registry import build_model
from core.plugins import import_factory, load_chosen, validate_options
from core.sampling.sampler import Sampler, SamplerContext
from core.selection import Chosen, Selection

logger = logging.getLogger(__name__)


def build_runner(config: EngineConfig, info: ModelInfo, selection: Selection, device: torch.device) -> ModelRunner:
    """Load the weights, then give the pool what memory is left. Raises `ConfigError` if that is too little."""
    start = time.perf_counter()
    dtype: torch.dtype = getattr(torch, info.dtype)
    model = build_model(
        info.hf_config, max_context_len=info.max_context_len, ops=TorchLayerOps(), dtype=dtype, device=device
    )
    open_loader(selection.weight_loader, info.path, config.model.seed).load_into(model)
    model.freeze()
    logger.info("weights loaded in %.1f s", time.perf_counter() - start)

    (geometry,) = info.kv_groups
    max_rows = config.scheduler.max_running_requests + 1
    page_size = config.cache.page_size
    pool = _make_pool(config, info, selection.kv_pool, geometry, device)
    page_table = PageTable(max_rows, -(-info.max_context_len // page_size), device)
    context: dict[str, Any] = {
        "geometry": geometry,
        "page_size": page_size,
        "kv_pool": pool,
        "page_table": page_table.table,
        "dtype": dtype,
        "max_bs": config.scheduler.max_running_requests,
        "max_num_tokens": config.scheduler.chunked_prefill_size + config.scheduler.max_running_requests,
        "max_context_len": info.max_context_len,
        "device": device,
    }
    decode, decode_needs_cpu = _make_backend(selection.decode_attention, context)
    extend, extend_needs_cpu = decode, decode_needs_cpu
    if selection.prefill_attention != selection.decode_attention:
        extend, extend_needs_cpu = _make_backend(selection.prefill_attention, context)
    group = KVGroup(geometry, pool, page_table, decode, extend, decode_needs_cpu, extend_needs_cpu)
    limits = WorkerLimits(
        num_pages=(pool.context.num_pages,),
        page_size=page_size,
        max_rows=max_rows,
        max_context_len=info.max_context_len,
        vocab_size=info.vocab_size,
        launches_async=device.type != "cpu",
    )
    sampler = _make_sampler(selection.sampler, limits, device)
    return ModelRunner(model=model, groups=[group], sampler=sampler, limits=limits, device=device)


def _make_pool(
    config: EngineConfig, info: ModelInfo, chosen: Chosen, geometry: KVGroupGeometry, device: torch.device
) -> KVPool:
    spec = load_chosen(chosen)
    pool_class = cast(type[KVPool], import_factory(spec))
    name = info.dtype if config.cache.kv_cache_dtype == "auto" else config.cache.kv_cache_dtype
    dtype: torch.dtype = getattr(torch, name)
    page_size = config.cache.page_size
    bytes_per_page = pool_class.bytes_per_page(geometry, page_size, dtype)
    num_pages = plan_num_pages(
        free_bytes=available_bytes(device),
        bytes_per_page=bytes_per_page,
        page_size=page_size,
        max_context_len=info.max_context_len,
        max_running_requests=config.scheduler.max_running_requests,
        max_total_tokens=config.cache.max_total_tokens,
        mem_fraction=config.cache.mem_fraction,
        device_type=device.type,
    )
    options = validate_options(spec, chosen.options)
    pool = pool_class(KVPoolContext(geometry, num_pages, page_size, dtype, device, options))
    logger.info(
        "KV pool: %d tokens in pages of %d, %.2f GiB of %s",
        (num_pages - 1) * page_size,
        page_size,
        num_pages * bytes_per_page / 2**30,
        name,
    )
    return pool


def _make_backend(chosen: Chosen, context: dict[str, Any]) -> tuple[AttentionBackend, bool]:
    """The backend, and whether it declared to read host copies of lengths."""
    spec = load_chosen(chosen)
    backend = import_factory(spec)(BackendContext(**context, options=validate_options(spec, chosen.options)))
    return backend, spec.capabilities.needs_cpu_seq_lens


def _make_sampler(chosen: Chosen, limits: WorkerLimits, device: torch.device) -> Sampler:
    spec = load_chosen(chosen)
    options = validate_options(spec, chosen.options)
    sampler: Sampler = import_factory(spec)(SamplerContext(limits.vocab_size, limits.max_rows, device, options))
    return sampler
