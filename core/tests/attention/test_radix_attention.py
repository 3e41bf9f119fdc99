"""`RadixAttention` writes this step's keys and values where the batch says, and asks the group's backend by mode."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from core.attention.backend import AttentionBackend
from core.attention.radix_attention import GroupForward, RadixAttention
from core.errors import PluginError
from core.model_executor.forward_batch import ForwardBatch
from core.model_executor.forward_mode import ForwardMode
from core.testing.attention_cases import AttentionCase, RowCase, build_case, build_geometry, decode_rows


class RecordingBackend(AttentionBackend):
    """Notes what it is called with and what the pool held then."""

    def __init__(self, case: AttentionCase) -> None:
        super().__init__(case.context)
        self.calls: list[tuple[str, RadixAttention, ForwardBatch, torch.Tensor]] = []

    def init_forward_metadata(self, batch: ForwardBatch) -> None:
        raise AssertionError("the worker's business, once a step")

    def forward_decode(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: RadixAttention, batch: ForwardBatch
    ) -> torch.Tensor:
        return self.note("decode", q, layer, batch)

    def forward_extend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: RadixAttention, batch: ForwardBatch
    ) -> torch.Tensor:
        return self.note("extend", q, layer, batch)

    def note(self, name: str, q: torch.Tensor, layer: RadixAttention, batch: ForwardBatch) -> torch.Tensor:
        held = self.context.kv_pool.get_kv_buffer(layer.layer_id)[0].flatten(0, 1)[batch.out_cache_loc]
        self.calls.append((name, layer, batch, held))
        return q * 2


def group_of(case: AttentionCase) -> tuple[RecordingBackend, GroupForward]:
    backend = RecordingBackend(case)
    return backend, GroupForward(backend, case.context.kv_pool, case.batch)


@pytest.mark.parametrize(
    ("mode", "called"),
    [(ForwardMode.DECODE, "decode"), (ForwardMode.EXTEND, "extend"), (ForwardMode.MIXED, "extend")],
)
def test_writes_then_attends_by_mode(mode: ForwardMode, called: str) -> None:
    rows = decode_rows(5, 20) if mode is ForwardMode.DECODE else [RowCase(7, 4), RowCase(3, 1)]
    case = build_case(rows, mode=mode, page_size=4)
    backend, group = group_of(case)
    k, v = torch.randn_like(case.k), torch.randn_like(case.v)
    before = [x.clone() for x in case.context.kv_pool.get_kv_buffer(1)]

    out = case.layer(case.q, k, v, (group,))

    ((name, layer, batch, held),) = backend.calls
    assert (name, layer, batch) == (called, case.layer, case.batch)
    torch.testing.assert_close(held, k, rtol=0, atol=0)
    torch.testing.assert_close(out, case.q * 2, rtol=0, atol=0)
    for after, old, new in zip(case.context.kv_pool.get_kv_buffer(1), before, (k, v), strict=True):
        old.flatten(0, 1)[case.batch.out_cache_loc] = new
        torch.testing.assert_close(after, old, rtol=0, atol=0, equal_nan=True)


def test_each_layer_uses_the_memory_of_its_group() -> None:
    cases = [build_case(decode_rows(5), mode=ForwardMode.DECODE, seed=seed) for seed in (1, 2)]
    (first, first_group), (second, second_group) = map(group_of, cases)
    layer = RadixAttention(0, group_id=1)
    layer(cases[1].q, cases[1].k, cases[1].v, (first_group, second_group))
    assert first.calls == []
    assert [call[1] for call in second.calls] == [layer]
    assert bool(cases[0].context.kv_pool.get_kv_buffer(0)[0].isnan().all())


def test_sinks_are_a_parameter_and_the_layer_has_no_other_state() -> None:
    sinks = nn.Parameter(torch.zeros(4))
    assert list(RadixAttention(0, sinks=sinks).parameters()) == [sinks]
    assert RadixAttention(0).state_dict() == {}


def test_a_backend_without_graphs_says_so() -> None:
    case = build_case(decode_rows(5), mode=ForwardMode.DECODE, geometry=build_geometry())
    backend = RecordingBackend(replace(case))
    for call in (
        lambda: backend.init_cuda_graph_state(1, 1),
        lambda: backend.init_forward_metadata_capture_cuda_graph(case.batch),
        lambda: backend.init_forward_metadata_replay_cuda_graph(case.batch),
        backend.get_cuda_graph_seq_len_fill_value,
    ):
        with pytest.raises(PluginError, match="RecordingBackend was asked for a CUDA graph"):
            call()
