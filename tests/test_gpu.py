"""Whole models on a CUDA device: greedy answers equal transformers' on the same device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from reference import check
from test_architectures import CASES, PROMPTS, save

from core import Engine, SamplingParams

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("name", ["llama-llama3", "mistral-window", "qwen2", "qwen3"])
def test_greedy_answers_equal_transformers(name: str, overlap: bool, tmp_path: Path) -> None:
    model = save(CASES[name], tmp_path).cuda()
    params = SamplingParams(temperature=0.0, max_tokens=80, ignore_eos=True)
    settings = {"chunked_prefill_size": 48, "max_total_tokens": 4096, "disable_overlap_schedule": not overlap}
    with Engine(model=str(tmp_path), device="cuda", **settings) as engine:
        for _ in ("cold", "warm"):
            for prompt, result in zip(PROMPTS, engine.generate(PROMPTS, params), strict=True):
                check(model, prompt, result.token_ids)
