"""Which device `--device` means."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from core.device import detect_device
from core.errors import ConfigError


def test_cpu_needs_no_torch() -> None:
    code = "import sys; from core.device import detect_device; print(detect_device('cpu').type, 'torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "cpu False\n"


def test_auto_is_cuda_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "A chip")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    for name in ("auto", "cuda"):
        device = detect_device(name)
        assert (device.type, device.name, device.compute_capability) == ("cuda", "A chip", (9, 0))
    assert detect_device("cpu").type == "cpu"


@pytest.mark.parametrize(
    ("built", "told"), [(None, "is built for the CPU only: install a build with CUDA"), ("12.9", "check the driver")]
)
def test_without_cuda_auto_is_the_cpu_and_cuda_an_error(
    monkeypatch: pytest.MonkeyPatch, built: str | None, told: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", built)
    monkeypatch.setattr(torch.version, "hip", None)
    assert detect_device("auto").type == "cpu"
    with pytest.raises(ConfigError, match=f"--device cuda: .*{told}, or use --device cpu"):
        detect_device("cuda")
