"""The same suite on a CUDA device."""

from __future__ import annotations

import pytest
import torch

from core.testing.attention_suite import AttentionBackendSuite


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestTorchOnGpu(AttentionBackendSuite):
    backend = "torch"
    device = "cuda"
