"""Products with packed weights equal plain ones, whatever the number of tokens."""

from __future__ import annotations

import pytest
import torch

from core.layers.linear import Linear
from core.layers.matmul import fastest_matmul
from core.layers.placement import Placement


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("num_tokens", [1, 2, 17, 130])
def test_the_fastest_product_is_as_exact_as_the_plain_one(num_tokens: int, dtype: torch.dtype, bias: bool) -> None:
    generator = torch.Generator().manual_seed(num_tokens)
    x = torch.randn(num_tokens, 48, generator=generator).to(dtype)
    weight = torch.randn(80, 48, generator=generator).to(dtype)
    offset = torch.randn(80, generator=generator).to(dtype) if bias else None
    exact = x.double() @ weight.double().T + (offset.double() if offset is not None else 0)
    plain = torch.nn.functional.linear(x, weight, offset)
    got = fastest_matmul(weight, offset)(x)
    assert got.dtype == dtype
    error, allowed = (got - exact).abs().max(), (plain - exact).abs().max()
    assert error <= 2 * allowed + torch.finfo(dtype).eps


def test_a_frozen_linear_gives_the_same_and_lets_its_weight_go() -> None:
    linear = Linear(48, {"a": 16, "b": 8}, bias=True, placement=Placement(torch.float32, torch.device("cpu")))
    for target in linear.weight_targets("").values():
        target.normal_()
    x = torch.randn(3, 48)
    plain = linear(x)
    linear.freeze()
    torch.testing.assert_close(linear(x), plain)
    assert "weight" not in dict(linear.named_parameters())
