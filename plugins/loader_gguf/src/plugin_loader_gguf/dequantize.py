"""Turns the data of a GGUF tensor into a tensor of floats."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Final

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from core.errors import ModelError
from plugin_loader_gguf.gguf_file import GGUFFile, TensorInfo

FLOAT_DTYPES: Final = {
    GGMLQuantizationType.F32: torch.float32,
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
}

# Values that are dequantised at a time: few enough for the intermediate arrays to stay in a core's cache.
_CHUNK: Final = 1 << 17


def read_tensor(file: GGUFFile, info: TensorInfo, executor: Executor | None = None) -> torch.Tensor:
    """The tensor on the CPU: in the file's dtype if that is a float dtype, else dequantised to float32.

    A float tensor shares the file's mapping; writing to it changes neither the file nor another read of the file.
    The others are computed by `executor`, a piece a task, or by the caller if there is none. Raises `ModelError` for a
    type that the gguf package cannot dequantise.
    """
    dtype = FLOAT_DTYPES.get(info.type)
    if dtype is not None:
        count = info.num_bytes // dtype.itemsize
        return torch.frombuffer(file.data, dtype=dtype, count=count, offset=info.offset).view(info.shape)
    block_size, block_bytes = GGML_QUANT_SIZES[info.type]
    raw = np.frombuffer(file.data, dtype=np.uint8, count=info.num_bytes, offset=info.offset)
    num_blocks = info.num_bytes // block_bytes
    values = np.empty((num_blocks, block_size), dtype=np.float32)
    step = max(1, _CHUNK // block_size)

    def unpack(start: int) -> None:
        # As one row, since `dequantize` works on a few rows at a time, which for short rows is slow.
        chunk = raw[start * block_bytes : (start + step) * block_bytes].reshape(1, -1)
        values[start : start + step] = dequantize(chunk, info.type).reshape(-1, block_size)

    starts = range(0, num_blocks, step)
    try:
        for _ in map(unpack, starts) if executor is None else executor.map(unpack, starts):
            pass
    except NotImplementedError:
        raise ModelError(
            f"{file.path}: the tensor {info.name} is of type {info.type.name}, which the installed gguf package cannot "
            "dequantise; use a file in another quantisation"
        ) from None
    return torch.from_numpy(values).view(info.shape)
