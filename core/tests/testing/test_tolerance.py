"""What the measuring stick lets pass, and what not."""

from __future__ import annotations

import pytest
import torch

from core.testing.tolerance import accuracy_faults, assert_accurate

REFERENCE = torch.randn(12, 4, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def rounded(dtype: torch.dtype, seed: int, units: float = 1.0) -> torch.Tensor:
    """The reference with random errors of about `units` units in the last place."""
    noise = torch.randn(REFERENCE.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (REFERENCE + units * torch.finfo(dtype).eps * noise).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_other_errors_of_the_same_size_pass(dtype: torch.dtype) -> None:
    for seed in range(20):
        assert accuracy_faults(rounded(dtype, seed), REFERENCE, rounded(dtype, 99)) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_errors_of_ten_times_the_size_fail(dtype: torch.dtype) -> None:
    faults = accuracy_faults(rounded(dtype, 0, units=40.0), REFERENCE, rounded(dtype, 99, units=4.0))
    assert len(faults) >= 12


def test_one_wrong_token_is_named() -> None:
    actual = rounded(torch.float32, 0)
    actual[7, 2] += 1e-3
    faults = accuracy_faults(actual, REFERENCE, rounded(torch.float32, 99))
    assert faults
    assert all(fault.startswith("token 7:") for fault in faults)


def test_exact_eager_allows_the_last_place() -> None:
    eager = REFERENCE.float()
    exact = eager.double()
    assert accuracy_faults(torch.nextafter(eager, torch.tensor(9.0)), exact, eager) == []


def test_zeros_must_be_zeros() -> None:
    reference = REFERENCE.clone()
    reference[3] = 0
    actual, eager = rounded(torch.float32, 0), rounded(torch.float32, 99)
    actual[3] = eager[3] = 0
    assert accuracy_faults(actual, reference, eager) == []
    actual[3, 0, 0] = 1e-30
    assert [fault.split(":")[0] for fault in accuracy_faults(actual, reference, eager)] == ["token 3", "token 3"]


def test_shape_dtype_and_finiteness() -> None:
    eager = rounded(torch.float32, 99)
    assert "shape" in accuracy_faults(eager[:, :2], REFERENCE, eager)[0]
    assert "dtype" in accuracy_faults(eager.double(), REFERENCE, eager)[0]
    broken = eager.clone()
    broken[5, 0, 0] = float("nan")
    assert accuracy_faults(broken, REFERENCE, eager) == ["token 5 is not finite"]


def test_assertion_names_the_case_and_counts_faults() -> None:
    with pytest.raises(AssertionError, match=r"(?s)^rows of one:\n  token 0: .* and \d+ more$"):
        assert_accurate(rounded(torch.float32, 0, units=100.0), REFERENCE, rounded(torch.float32, 99), "rows of one")
