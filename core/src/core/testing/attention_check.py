"""`AttentionCheck`: runs an attention backend on a random step and compares it with float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import pytest
import torch

from core.attention.backend import AttentionBackend
from core.attention.capabilities import AttentionBackendSpec, AttentionRequirements, CudaGraphSupport
from core.mem_cache.kv_pool import KVPool, KVPoolContext
from core.testing.attention_cases import AttentionCase, RowCase, build_case
from core.testing.tolerance import assert_accurate


@final
@dataclass(frozen=True, slots=True)
class AttentionCheck:
    """One backend on one device over one kind of pool. `factory` makes a backend from its context."""

    spec: AttentionBackendSpec
    factory: Callable[..., AttentionBackend]
    device: str
    pool: Callable[[KVPoolContext], KVPool]

    def __call__(self, rows: Sequence[RowCase], **options: Any) -> None:
        """Run one random step and compare it with float64. Options are those of `build_case`."""
        case = self.case(rows, **options)
        self.compare(self.run(case), case, f"{len(rows)} rows, {options}")

    def case(self, rows: Sequence[RowCase], **options: Any) -> AttentionCase:
        """`build_case` for this device and pool; skips the test where the backend's capabilities say no."""
        case = build_case(rows, device=self.device, pool=self.pool, **options)
        reasons = self.spec.capabilities.mismatches(requirements_of(case))
        if reasons:
            pytest.skip(f"{self.spec.name} declares: " + "; ".join(map(str, reasons)))
        return case

    def make(self, case: AttentionCase) -> AttentionBackend:
        """The backend for a case's context."""
        return self.factory(case.context)

    def run(self, case: AttentionCase) -> torch.Tensor:
        """One step through a backend of its own."""
        return self.step(self.make(case), case)

    def step(self, backend: AttentionBackend, case: AttentionCase) -> torch.Tensor:
        """One step through a backend that was made for the same memory."""
        batch = case.batch
        if not self.spec.capabilities.needs_cpu_seq_lens:
            batch.seq_lens_cpu = batch.extend_seq_lens_cpu = batch.extend_prefix_lens_cpu = None
        backend.init_forward_metadata(batch)
        return backend.forward(case.q, case.k, case.v, case.layer, batch)

    def compare(self, out: torch.Tensor, case: AttentionCase, what: str) -> None:
        """Fail unless `out` is as accurate as eager code is."""
        assert_accurate(out, case.reference(), case.eager(), f"{self.spec.name}: {what}")


def requirements_of(case: AttentionCase) -> AttentionRequirements:
    """What a case asks of a backend."""
    context = case.context
    geometry, layout = context.geometry, context.kv_pool.layout
    return AttentionRequirements(
        device_type=context.device.type,
        dtype=str(context.dtype).removeprefix("torch."),
        kv_dtype=str(layout.dtype).removeprefix("torch."),
        kv_axis_order=layout.axis_order,
        head_dim=geometry.head_dim,
        v_head_dim=geometry.v_head_dim,
        num_qo_heads=geometry.num_qo_heads,
        num_kv_heads=geometry.num_kv_heads,
        page_size=context.page_size,
        window=geometry.window,
        soft_cap=geometry.soft_cap,
        sinks=geometry.sinks,
        mla=geometry.mla,
        cuda_graph=CudaGraphSupport.NEVER,
        modes=frozenset({case.batch.forward_mode.value}),
    )
