"""The suite tests itself: eager code passes it, and each mutant of it fails at the test made for its fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from core.attention.backend import AttentionBackend, BackendContext
from core.attention.capabilities import AttentionBackendSpec, AttentionCapabilities, CudaGraphSupport
from core.attention.radix_attention import RadixAttention
from core.model_executor.forward_batch import ForwardBatch
from core.model_executor.forward_mode import ForwardMode
from core.testing.attention_check import AttentionCheck
from core.testing.attention_reference import eager_attention
from core.testing.attention_suite import FEATURES, AttentionBackendSuite
from core.testing.dense_kv_pool import DenseKVPool

DECODE, EXTEND, MIXED = ForwardMode.DECODE, ForwardMode.EXTEND, ForwardMode.MIXED


class EagerBackend(AttentionBackend):
    """Eager attention over pages, with one seam for each fault."""

    def init_forward_metadata(self, batch: ForwardBatch) -> None:
        new = torch.ones_like(batch.seq_lens) if batch.extend_seq_lens is None else batch.extend_seq_lens
        self.rows, self.seq_lens, self.new = batch.req_pool_indices, batch.seq_lens, new

    def table(self) -> torch.Tensor:
        return self.context.page_table

    def layer_id(self, layer: RadixAttention) -> int:
        return layer.layer_id

    def window(self) -> int | None:
        return self.context.geometry.window

    def keys(self, k_cache: torch.Tensor) -> torch.Tensor:
        return k_cache

    def finish(self, out: torch.Tensor) -> torch.Tensor:
        return out

    def forward_decode(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: RadixAttention, batch: ForwardBatch
    ) -> torch.Tensor:
        return self.forward_extend(q, k, v, layer, batch)

    def forward_extend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: RadixAttention, batch: ForwardBatch
    ) -> torch.Tensor:
        geometry = self.context.geometry
        k_cache, v_cache = self.context.kv_pool.get_kv_buffer(self.layer_id(layer))
        return self.finish(
            eager_attention(
                q,
                self.keys(k_cache),
                v_cache,
                self.table(),
                self.rows,
                self.seq_lens,
                self.new,
                self.context.page_size,
                geometry.scale,
                window=self.window(),
                soft_cap=geometry.soft_cap,
                sinks=layer.sinks,
            )
        )


class PageOrderIgnored(EagerBackend):
    def table(self) -> torch.Tensor:
        return self.context.page_table.sort(dim=1).values


class WrongLayer(EagerBackend):
    def layer_id(self, layer: RadixAttention) -> int:
        return 0


class WindowOneMore(EagerBackend):
    def window(self) -> int | None:
        window = self.context.geometry.window
        return None if window is None else window + 1


class HeadsRolled(EagerBackend):
    def keys(self, k_cache: torch.Tensor) -> torch.Tensor:
        return k_cache.roll(1, dims=2)


class PaddingRead(EagerBackend):
    def init_forward_metadata(self, batch: ForwardBatch) -> None:
        super().init_forward_metadata(batch)
        self.seq_lens = self.seq_lens + 1


class StaleMetadata(EagerBackend):
    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self.first: dict[int, torch.Tensor] = {}

    def init_forward_metadata(self, batch: ForwardBatch) -> None:
        super().init_forward_metadata(batch)
        self.rows = self.first.setdefault(batch.bs, self.rows)


class ReusedOutput(EagerBackend):
    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        geometry = context.geometry
        self.out = torch.empty(context.max_num_tokens, geometry.num_qo_heads, geometry.v_head_dim, dtype=context.dtype)

    def finish(self, out: torch.Tensor) -> torch.Tensor:
        return self.out[: len(out)].copy_(out)


class WritesItsInput(EagerBackend):
    def forward_extend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: RadixAttention, batch: ForwardBatch
    ) -> torch.Tensor:
        return super().forward_extend(q, k, v.zero_(), layer, batch)


class NoZeros(EagerBackend):
    def finish(self, out: torch.Tensor) -> torch.Tensor:
        return out + 1e-20


class InHalfPrecision(EagerBackend):
    def finish(self, out: torch.Tensor) -> torch.Tensor:
        return out.half().to(out.dtype)


class WrongDtype(EagerBackend):
    def finish(self, out: torch.Tensor) -> torch.Tensor:
        return out.double()


class NotDeterministic(EagerBackend):
    def finish(self, out: torch.Tensor) -> torch.Tensor:
        return out + torch.rand(1) * torch.finfo(out.dtype).eps * out.abs().max()


class EagerSuite(AttentionBackendSuite):
    backend = "eager"


suite = EagerSuite()

TESTS: dict[str, Callable[[AttentionCheck], None]] = {
    "pages": lambda check: suite.test_page_sizes_and_dtypes(check, MIXED, 16, torch.float32),
    "half": lambda check: suite.test_page_sizes_and_dtypes(check, DECODE, 16, torch.bfloat16),
    "heads": lambda check: suite.test_query_heads_share_kv_heads(check, DECODE, 9, 3),
    "window": lambda check: suite.test_window(check, EXTEND, 16, 17),
    "zeros": lambda check: suite.test_row_of_length_0_gives_zeros(check, (0, 5, 0), {}),
    "features": lambda check: suite.test_features(check, MIXED, torch.float32, FEATURES["all"]),
    "chunks": lambda check: suite.test_chunks_equal_the_whole(check, 17, FEATURES["window"]),
    "steps": lambda check: suite.test_one_instance_serves_steps_of_any_rows(check, MIXED),
    "fresh": lambda check: suite.test_result_is_fresh_and_nothing_else_is_written(check, EXTEND),
    "extreme": lambda check: suite.test_extreme_scores(check, DECODE, 100.0),
    "bits": lambda check: suite.test_same_input_gives_same_bits(check, DECODE, torch.float32),
    "invariant": lambda check: suite.test_rows_do_not_depend_on_each_other(check),
}
FAULTS: list[tuple[type[AttentionBackend], str]] = [
    (PageOrderIgnored, "pages"),
    (WrongLayer, "pages"),
    (HeadsRolled, "heads"),
    (WindowOneMore, "window"),
    (PaddingRead, "pages"),
    (StaleMetadata, "steps"),
    (ReusedOutput, "fresh"),
    (WritesItsInput, "fresh"),
    (NoZeros, "zeros"),
    (InHalfPrecision, "pages"),
    (WrongDtype, "pages"),
    (NotDeterministic, "bits"),
]


def check_of(backend: Callable[..., AttentionBackend], **capabilities: Any) -> AttentionCheck:
    declared: dict[str, Any] = {
        "device_types": "any",
        "dtypes": "any",
        "kv_dtypes": "any",
        "kv_axis_orders": frozenset({"NHD"}),
        "head_dims": "any",
        "v_head_dim_may_differ": True,
        "gqa_ratios": "any",
        "page_sizes": "any",
        "window": True,
        "soft_cap": True,
        "sinks": True,
        "mla": False,
        "modes": frozenset({"extend", "decode", "mixed"}),
        "cuda_graph": CudaGraphSupport.NEVER,
        "needs_cpu_seq_lens": False,
        "deterministic": True,
        "batch_invariant": True,
        **capabilities,
    }
    spec = AttentionBackendSpec(
        name="eager", api=(1, 0), capabilities=AttentionCapabilities(**declared), factory="nowhere:at_all"
    )
    return AttentionCheck(spec, backend, "cpu", DenseKVPool)


@pytest.mark.parametrize("test", TESTS)
def test_eager_passes(test: str) -> None:
    TESTS[test](check_of(EagerBackend))


@pytest.mark.parametrize(("mutant", "test"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_mutant_fails(mutant: type[AttentionBackend], test: str) -> None:
    with pytest.raises(AssertionError):
        TESTS[test](check_of(mutant))


@pytest.mark.parametrize(
    ("test", "lacking", "reason"),
    [
        ("pages", {"page_sizes": frozenset({64})}, "PAGE_SIZE wanted 16, supported 64"),
        ("half", {"dtypes": frozenset({"float32"})}, "DTYPE wanted bfloat16"),
        ("window", {"window": False}, "WINDOW wanted 17"),
        ("features", {"sinks": False}, "SINKS"),
        ("bits", {"deterministic": False}, "deterministic=False"),
        ("invariant", {"batch_invariant": False}, "batch_invariant=False"),
    ],
)
def test_what_is_declared_unsupported_is_skipped(test: str, lacking: dict[str, Any], reason: str) -> None:
    with pytest.raises(pytest.skip.Exception, match=reason):
        TESTS[test](check_of(EagerBackend, **lacking))


def test_undeclared_host_lengths_are_not_given() -> None:
    class ReadsHostLengths(EagerBackend):
        def init_forward_metadata(self, batch: ForwardBatch) -> None:
            super().init_forward_metadata(batch)
            assert batch.seq_lens_cpu is not None, "no host lengths"

    TESTS["pages"](check_of(ReadsHostLengths, needs_cpu_seq_lens=True))
    with pytest.raises(AssertionError, match="no host lengths"):
        TESTS["pages"](check_of(ReadsHostLengths))
