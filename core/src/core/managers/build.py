"""Builds an engine in the process that will run it."""

from __future__ import annotations

import time

from core.managers.engine_core import EngineCore
from core.managers.prepare import Prepared


def build_engine_core(prepared: Prepared) -> EngineCore:
    """Load the weights and what was selected; the engine is ready when this returns."""
    import torch

    from core.model_executor.build import build_runner

    start = time.perf_counter()
    runner = build_runner(prepared.config, prepared.info, prepared.selection, torch.device(prepared.device.type))
    return EngineCore(
        runner,
        prepared.config.scheduler,
        share_prefixes=not prepared.config.cache.disable_radix_cache,
        load_seconds=time.perf_counter() - start,
    )
