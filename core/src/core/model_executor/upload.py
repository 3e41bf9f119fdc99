"""One host-to-device copy for all the integers of a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch


def upload(arrays: Sequence[npt.NDArray[np.int32]], device: torch.device) -> list[torch.Tensor]:
    """Copy integer arrays to the device in one transfer.

    Returns one int32 tensor an array, of its shape; views of one buffer that belongs to the caller. Asynchronous on a
    GPU: the staging buffer is pinned, and torch's caching host allocator keeps it until the copy has been made.
    """
    staged = torch.from_numpy(np.concatenate([array.ravel() for array in arrays]))
    if device.type != "cpu":
        staged = staged.pin_memory().to(device, non_blocking=True)
    parts = torch.split(staged, [array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]
