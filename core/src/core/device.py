"""Finds the device to run on."""

from __future__ import annotations

import platform
from typing import Literal

from core.errors import ConfigError
from core.specs import DeviceInfo


def detect_device(name: Literal["auto", "cpu", "cuda"]) -> DeviceInfo:
    """What `--device` means on this machine: `auto` is CUDA where there is one. Imports torch unless asked for `cpu`.

    Raises:
        ConfigError: `cuda` was asked for, and there is none.
    """
    if name == "cpu":
        return _cpu()

    import torch

    if torch.cuda.is_available():
        return DeviceInfo("cuda", torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0))
    if name == "auto":
        return _cpu()
    built = torch.version.cuda or torch.version.hip
    reason = (
        f"torch {torch.__version__} is built for {built}, but sees no device: check the driver"
        if built
        else f"torch {torch.__version__} is built for the CPU only: install a build with CUDA"
    )
    raise ConfigError(f"--device cuda: {reason}, or use --device cpu.")


def _cpu() -> DeviceInfo:
    return DeviceInfo("cpu", platform.machine())
