"""Random weights need a configuration alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.config import ModelConfig
from core.errors import ModelError
from core.layers.ops import TorchLayerOps
from core.loading.dummy_loader import STD, DummyLoader
from core.loading.model_info import load_model_info
from core.loading.weight_loader import WeightLoaderContext
from core.models.registry import build_model
from core.specs import NoOptions


def load(folder: Path, seed: int) -> dict[str, torch.Tensor]:
    loader = DummyLoader(WeightLoaderContext(folder, NoOptions(), seed))
    info = load_model_info(loader, ModelConfig(model=str(folder)))
    model = build_model(
        info.hf_config, max_context_len=8, ops=TorchLayerOps(), dtype=torch.float32, device=torch.device("cpu")
    )
    for parameter in model.parameters():
        parameter.fill_(torch.nan)
    loader.load_into(model)
    return dict(model.named_parameters())


def test_every_parameter_is_drawn_and_the_seed_decides(folder: Path) -> None:
    first, again, other = load(folder, 1), load(folder, 1), load(folder, 2)
    for name, parameter in first.items():
        assert torch.equal(parameter, again[name]), name
        if "norm" in name:
            assert bool((parameter == 1).all()), name
            continue
        assert not torch.equal(parameter, other[name]), name
        assert abs(float(parameter.std()) / STD - 1) < 0.15, name
        assert abs(float(parameter.mean())) < 0.2 * STD, name


def test_no_two_parameters_are_the_same(folder: Path) -> None:
    rows = [parameter.flatten()[:16] for parameter in load(folder, 1).values() if parameter.dim() == 2]
    assert len({tuple(row.tolist()) for row in rows}) == len(rows) > 3


def test_a_tokenizer_is_optional(folder: Path) -> None:
    with pytest.raises(ModelError, match="has no tokenizer"):
        DummyLoader(WeightLoaderContext(folder, NoOptions())).load_tokenizer()
