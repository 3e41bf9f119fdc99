"""The measuring stick: a kernel may be a small factor further from float64 than eager code in its own dtype is."""

from __future__ import annotations

import torch

FACTOR = 3.0
"""How many times eager's root mean square error a kernel's may be.

Kernels sum in another order, and eager is but one sample: up to 2.2 was seen between machines where nothing is wrong.
"""

MAX_FACTOR = 4.0
"""The same for the largest error, which varies more."""

FLOOR = 1.0
"""Root mean square error, in units in the last place, that always passes: eager may happen to be exact."""

MAX_FLOOR = 3.0
"""Largest error that always passes. A kernel that rescales as it goes rounds a weight of 1 three times, eager never."""


def accuracy_faults(actual: torch.Tensor, reference: torch.Tensor, eager: torch.Tensor) -> list[str]:
    """Why `actual` is not accurate enough, one line a fault; empty if it is.

    Args:
        actual: what the kernel returned, `[num_tokens, ...]`, in any dtype, on any device.
        reference: the same in float64.
        eager: the same computed eagerly in the kernel's dtype.

    Each token is measured alone, so that a wrong short row is not hidden by many right ones, and may be as wrong as
    eager's same token or, since that is but a sample, as eager's tokens on the whole. Errors are in units: the last
    place of the token's largest element. `FLOOR` and `MAX_FLOOR` always pass. Where the reference is zero, so must the
    result be.
    """
    if actual.shape != reference.shape:
        return [f"shape {tuple(actual.shape)}, expected {tuple(reference.shape)}"]
    if actual.dtype != eager.dtype:
        return [f"dtype {actual.dtype}, expected {eager.dtype}"]
    measured = actual.detach().cpu().double()
    not_finite = (~torch.isfinite(measured)).flatten(1).any(dim=1)
    if bool(not_finite.any()):
        return [f"token {token} is not finite" for token in not_finite.nonzero().flatten().tolist()]
    unit = (torch.finfo(eager.dtype).eps * reference.abs().flatten(1).amax(dim=1)).clamp_(min=1e-300)
    error = (measured - reference).abs().flatten(1) / unit.unsqueeze(1)
    allowed = (eager.detach().cpu().double() - reference).abs().flatten(1) / unit.unsqueeze(1)
    rms, largest = _rms(allowed), allowed.amax(dim=1)
    measures = (
        ("rms", _rms(error), FLOOR + FACTOR * rms.clamp(min=float(rms.mean()))),
        ("largest", error.amax(dim=1), MAX_FLOOR + MAX_FACTOR * largest.amax().expand_as(largest)),
    )
    return [
        f"token {token}: {name} error of {found[token]:.3g} units in the last place, at most {limit[token]:.3g}"
        for name, found, limit in measures
        for token in (found > limit).nonzero().flatten().tolist()
    ]


def assert_accurate(actual: torch.Tensor, reference: torch.Tensor, eager: torch.Tensor, what: str) -> None:
    """Raise `AssertionError`, naming `what` and the first faults, if `accuracy_faults` finds any."""
    faults = accuracy_faults(actual, reference, eager)
    if faults:
        more = f"\n  and {len(faults) - 8} more" if len(faults) > 8 else ""
        raise AssertionError(f"{what}:\n  " + "\n  ".join(faults[:8]) + more)


def _rms(x: torch.Tensor) -> torch.Tensor:
    """`[num_tokens]`: root mean square of each token's elements."""
    return x.square().mean(dim=1).sqrt()
