"""The torch operations against their definitions in float64."""

from __future__ import annotations

import pytest
import torch

from core.layers.linear import Linear
from core.layers.ops import HeadNorms, TorchLayerOps
from core.layers.placement import Placement

OPS = TorchLayerOps()
CPU = torch.device("cpu")
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE)
NUM_TOKENS = pytest.mark.parametrize("num_tokens", [1, 5])


def expect(got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def exact_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@DTYPES
@NUM_TOKENS
def test_norms(dtype: torch.dtype, num_tokens: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, residual = torch.randn(2, num_tokens, 48, generator=generator).to(dtype)
    weight = torch.randn(48, generator=generator).to(dtype)
    before = x.clone(), residual.clone()
    expect(OPS.rms_norm(x, weight, 0.1), exact_norm(x, weight, 0.1), dtype)
    normed, total = OPS.add_rms_norm(x, residual, weight, 0.1)
    expect(total, x.double() + residual.double(), dtype)
    expect(normed, exact_norm(total, weight, 0.1), dtype)
    assert torch.equal(x, before[0])
    assert torch.equal(residual, before[1])


@DTYPES
def test_a_norm_of_small_half_precision_values_keeps_its_epsilon(dtype: torch.dtype) -> None:
    # Their squares are 0 in float16.
    x, weight = torch.full((1, 16), 1e-4, dtype=dtype), torch.ones(16, dtype=dtype)
    expect(OPS.rms_norm(x, weight, 1e-10), exact_norm(x, weight, 1e-10), dtype)


@DTYPES
@NUM_TOKENS
def test_silu_and_mul(dtype: torch.dtype, num_tokens: int) -> None:
    x = torch.randn(num_tokens, 14, generator=torch.Generator().manual_seed(0)).to(dtype)
    gate, up = x.double()[:, :7], x.double()[:, 7:]
    expect(OPS.silu_and_mul(x), gate / (1 + (-gate).exp()) * up, dtype)


def exact_rotation(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Channels i and i + half as the real and imaginary part of a number that is turned by an angle."""
    real, imaginary = heads.double().chunk(2, -1)
    turned = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angles), angles)[:, None]
    return torch.cat([turned.real, turned.imag], -1)


@DTYPES
@NUM_TOKENS
@pytest.mark.parametrize("normed", [False, True])
def test_rotate_qkv(dtype: torch.dtype, num_tokens: int, normed: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(num_tokens, (4 + 2 + 2) * 6, generator=generator).to(dtype)
    angles = torch.rand(num_tokens, 3, generator=generator, dtype=torch.float64) * 6
    cos = torch.cat([angles.cos(), angles.cos()], -1)[:, None].to(dtype)
    sin = torch.cat([-angles.sin(), angles.sin()], -1)[:, None].to(dtype)
    weights = torch.randn(2, 6, generator=generator).to(dtype)
    norms = HeadNorms(weights[0], weights[1], 0.1) if normed else None
    before = qkv.clone()

    q, k, v = OPS.rotate_qkv(qkv, 4, 2, cos, sin, norms)

    heads = before.view(num_tokens, 8, 6)
    exact_q, exact_k = heads[:, :4], heads[:, 4:6]
    if normed:
        exact_q, exact_k = exact_norm(exact_q, weights[0], 0.1), exact_norm(exact_k, weights[1], 0.1)
    expect(q, exact_rotation(exact_q, angles), dtype)
    expect(k, exact_rotation(exact_k, angles), dtype)
    assert torch.equal(v, heads[:, 6:])
    assert torch.equal(qkv, before)
    for tensor in (q, k, v):
        assert tensor.stride()[1:] == (6, 1)


@pytest.mark.parametrize("bias", [False, True])
def test_a_merged_linear_is_its_parts_side_by_side(bias: bool) -> None:
    linear = Linear(5, {"a": 3, "b": 2}, bias=bias, placement=Placement(torch.float64, CPU))
    targets = linear.weight_targets("x.")
    assert {name: tuple(target.shape) for name, target in targets.items()} == {
        "x.a.weight": (3, 5),
        "x.b.weight": (2, 5),
        **({"x.a.bias": (3,), "x.b.bias": (2,)} if bias else {}),
    }
    generator = torch.Generator().manual_seed(0)
    for target in targets.values():
        target.normal_(generator=generator)
    x = torch.randn(4, 5, dtype=torch.float64, generator=generator)
    parts = [x @ targets[f"x.{name}.weight"].T + (targets[f"x.{name}.bias"] if bias else 0) for name in "ab"]
    torch.testing.assert_close(linear(x), torch.cat(parts, 1))
