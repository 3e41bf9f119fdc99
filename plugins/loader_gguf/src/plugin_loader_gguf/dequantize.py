"""Turns the data of a GGUF tensor into a tensor of floats.

F32, F16 and BF16 are taken as they are. The small formats, which most files use, are computed here, on all cores; the
others by `gguf.quants`, in numpy. The formats are defined in ggml (`ggml-common.h`, `ggml-quants.c`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize as dequantize_numpy

from core.errors import ModelError
from plugin_loader_gguf.gguf_file import GGUFFile, TensorInfo

FLOAT_DTYPES: Final = {
    GGMLQuantizationType.F32: torch.float32,
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
}


def read_tensor(file: GGUFFile, info: TensorInfo) -> torch.Tensor:
    """The tensor on the CPU: in the file's dtype if that is a float dtype, else dequantised to float32.

    A float tensor shares the file's mapping; writing to it changes neither the file nor another read of the file.
    Raises `ModelError` for a type that nobody here can dequantise.
    """
    dtype = FLOAT_DTYPES.get(info.type)
    if dtype is not None:
        count = info.num_bytes // dtype.itemsize
        return torch.frombuffer(file.data, dtype=dtype, count=count, offset=info.offset).view(info.shape)
    raw = torch.frombuffer(file.data, dtype=torch.uint8, count=info.num_bytes, offset=info.offset)
    unpack = _UNPACK.get(info.type)
    if unpack is not None:
        return unpack(raw.view(-1, GGML_QUANT_SIZES[info.type][1])).view(info.shape)
    return _with_numpy(file, info, raw)


def _with_numpy(file: GGUFFile, info: TensorInfo, raw: torch.Tensor) -> torch.Tensor:
    rows = info.shape[0] if len(info.shape) > 1 else 1
    try:
        values = dequantize_numpy(raw.view(rows, -1).numpy(), info.type)
    except NotImplementedError:
        raise ModelError(
            f"{file.path}: the tensor {info.name} is of type {info.type.name}, which the installed gguf package cannot "
            "dequantise; use a file in another quantisation"
        ) from None
    return torch.from_numpy(np.ascontiguousarray(values)).view(info.shape)


# Each takes whole blocks, uint8 [num_blocks, block_bytes], and gives float32 [num_blocks, 32]. Scales are float16 and
# come first. The products are rounded before a minimum is added, as in ggml, so that results agree to the last bit.


def _half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    return blocks[:, at : at + 2].view(torch.float16).float()


def _nibbles(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """The 16 bytes at `at` as 32 values of 4 bits: all low halves, then all high ones."""
    packed = blocks[:, at : at + 16]
    values = torch.empty(blocks.shape[0], 32, dtype=torch.uint8)
    torch.bitwise_and(packed, 0x0F, out=values[:, :16])
    torch.bitwise_right_shift(packed, 4, out=values[:, 16:])
    return values


def _with_fifth_bits(blocks: torch.Tensor, at: int, low: torch.Tensor) -> torch.Tensor:
    """`low` with the 32 bits in the 4 bytes at `at` as its fifth bits."""
    shifts = torch.arange(8, dtype=torch.uint8)
    bits = (blocks[:, at : at + 4, None] >> shifts) & 1
    return low.bitwise_or_(bits.view(-1, 32) << 4)


def _q4_0(blocks: torch.Tensor) -> torch.Tensor:
    return _nibbles(blocks, 2).float().sub_(8).mul_(_half(blocks, 0))


def _q4_1(blocks: torch.Tensor) -> torch.Tensor:
    return _nibbles(blocks, 4).float().mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q5_0(blocks: torch.Tensor) -> torch.Tensor:
    return _with_fifth_bits(blocks, 2, _nibbles(blocks, 6)).float().sub_(16).mul_(_half(blocks, 0))


def _q5_1(blocks: torch.Tensor) -> torch.Tensor:
    return _with_fifth_bits(blocks, 4, _nibbles(blocks, 8)).float().mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q8_0(blocks: torch.Tensor) -> torch.Tensor:
    return blocks[:, 2:].view(torch.int8).float().mul_(_half(blocks, 0))


_UNPACK: Final[dict[GGMLQuantizationType, Callable[[torch.Tensor], torch.Tensor]]] = {
    GGMLQuantizationType.Q4_0: _q4_0,
    GGMLQuantizationType.Q4_1: _q4_1,
    GGMLQuantizationType.Q5_0: _q5_0,
    GGMLQuantizationType.Q5_1: _q5_1,
    GGMLQuantizationType.Q8_0: _q8_0,
}
