"""Every type of tensor, against the gguf package's own dequantisation of the same rows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from core.errors import ModelError
from plugin_loader_gguf.dequantize import read_tensor
from plugin_loader_gguf.gguf_file import read_gguf

Write = Callable[..., Path]

# More values than are dequantised at a time, in rows that no piece ends with.
SHAPE = (5, 3, 11264)
WRITTEN = (Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0)
# Where a block has its float16 scales: those are set to plain values, the rest is random.
K_SCALES = {Kind.Q2_K: (80, 82), Kind.Q3_K: (108,), Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2), Kind.Q6_K: (208,)}


def raw_data(kind: Kind) -> np.ndarray:
    generator = np.random.default_rng(0)
    if kind in WRITTEN:
        return gguf.quants.quantize(generator.standard_normal(SHAPE, dtype=np.float32), kind)
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = generator.integers(0, 256, (np.prod(SHAPE) // block_size, block_bytes), dtype=np.uint8)
    for at in K_SCALES[kind]:
        scales = generator.standard_normal(len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(*SHAPE[:-1], -1)


@pytest.mark.parametrize("kind", [*WRITTEN, *K_SCALES], ids=lambda kind: kind.name)
@pytest.mark.parametrize("num_threads", [0, 3])
def test_equals_the_gguf_package_row_by_row(write_gguf: Write, kind: Kind, num_threads: int) -> None:
    raw = raw_data(kind)
    file = read_gguf(write_gguf({}, {"a": (raw, kind)}))
    if num_threads:
        with ThreadPoolExecutor(num_threads) as executor:
            got = read_tensor(file, file.tensors["a"], executor)
    else:
        got = read_tensor(file, file.tensors["a"])
    expected = np.stack([gguf.quants.dequantize(row, kind) for row in raw.reshape(-1, raw.shape[-1])]).reshape(SHAPE)
    assert got.dtype == torch.float32
    assert torch.equal(got, torch.from_numpy(expected))


def test_q4_1_is_what_its_definition_says(write_gguf: Write) -> None:
    """float16 scale, float16 minimum, 16 bytes: low halves first, then high ones."""
    scale, minimum, packed = np.float16(0.25), np.float16(-1.5), np.arange(16, dtype=np.uint8) * 15 + 7
    raw = np.concatenate([np.array([scale, minimum]).view(np.uint8), packed])[None]
    file = read_gguf(write_gguf({}, {"a": (raw, Kind.Q4_1)}))
    expected = [0.25 * (byte & 15) - 1.5 for byte in packed] + [0.25 * (byte >> 4) - 1.5 for byte in packed]
    assert read_tensor(file, file.tensors["a"]).tolist() == [expected]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_floats_are_taken_as_they_are(write_gguf: Write, dtype: torch.dtype) -> None:
    values = torch.randn(3, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    kind = {torch.float32: Kind.F32, torch.float16: Kind.F16, torch.bfloat16: Kind.BF16}[dtype]
    file = read_gguf(write_gguf({}, {"a": (values.view(torch.uint8).numpy(), kind)}))
    got = read_tensor(file, file.tensors["a"])
    assert got.dtype == dtype
    assert torch.equal(got, values)


def test_writing_to_a_tensor_leaves_the_file_alone(write_gguf: Write) -> None:
    path = write_gguf({}, {"a": np.ones(8, dtype=np.float32)})
    file = read_gguf(path)
    read_tensor(file, file.tensors["a"]).zero_()
    again = read_gguf(path)
    assert read_tensor(again, again.tensors["a"]).tolist() == [1.0] * 8


def test_a_tensor_outlives_the_file_object(write_gguf: Write) -> None:
    file = read_gguf(write_gguf({}, {"a": np.arange(8, dtype=np.float32)}))
    tensor = read_tensor(file, file.tensors["a"])
    del file
    assert tensor.tolist() == list(range(8))


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_type_that_cannot_be_dequantised_is_refused_by_name(write_gguf: Write, num_threads: int) -> None:
    file = read_gguf(write_gguf({}, {"some.weight": np.zeros(32, dtype=np.int32)}))
    with ThreadPoolExecutor(2) as executor, pytest.raises(ModelError, match=r"some\.weight is of type I32"):
        read_tensor(file, file.tensors["some.weight"], executor if num_threads else None)
