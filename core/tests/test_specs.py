"""Requirements compared with capabilities: each capability alone decides over its own requirement."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.attention.capabilities import AttentionCapabilities, AttentionRequirements, CudaGraphSupport
from core.hookspecs import KINDS
from core.mem_cache.capabilities import KVPoolCapabilities, KVPoolRequirements
from core.sampling.capabilities import SamplerCapabilities, SamplerRequirements
from core.specs import Reason, check_flag, check_member

WANTED = AttentionRequirements(
    device_type="cpu",
    dtype="float32",
    kv_dtype="bfloat16",
    kv_axis_order="NHD",
    head_dim=64,
    v_head_dim=32,
    num_qo_heads=8,
    num_kv_heads=2,
    page_size=16,
    window=128,
    soft_cap=30.0,
    sinks=True,
    mla=True,
    cuda_graph=CudaGraphSupport.NEVER,
    modes=frozenset({"decode"}),
)
EXACT = AttentionCapabilities(
    device_types=frozenset({"cpu"}),
    dtypes=frozenset({"float32"}),
    kv_dtypes=frozenset({"bfloat16"}),
    kv_axis_orders=frozenset({"NHD"}),
    head_dims=frozenset({64}),
    v_head_dim_may_differ=True,
    gqa_ratios=frozenset({4}),
    page_sizes=frozenset({16}),
    window=True,
    soft_cap=True,
    sinks=True,
    mla=True,
    modes=frozenset({"decode"}),
    cuda_graph=CudaGraphSupport.NEVER,
    needs_cpu_seq_lens=False,
    deterministic=False,
    batch_invariant=False,
)
LIMITS = {
    "device_types": "DEVICE",
    "dtypes": "DTYPE",
    "kv_dtypes": "KV_DTYPE",
    "kv_axis_orders": "KV_LAYOUT",
    "head_dims": "HEAD_DIM",
    "v_head_dim_may_differ": "V_HEAD_DIM",
    "gqa_ratios": "GQA_RATIO",
    "page_sizes": "PAGE_SIZE",
    "window": "WINDOW",
    "soft_cap": "SOFT_CAP",
    "sinks": "SINKS",
    "mla": "MLA",
    "modes": "MODE",
}


def codes(reasons: list[Reason]) -> set[str]:
    return {reason.code for reason in reasons}


@given(st.sets(st.sampled_from(sorted(LIMITS))))
def test_each_lacking_capability_gives_exactly_its_reason(lacking: set[str]) -> None:
    nothing: dict[str, Any] = {
        name: False if isinstance(getattr(EXACT, name), bool) else frozenset() for name in lacking
    }
    assert codes(dataclasses.replace(EXACT, **nothing).mismatches(WANTED)) == {LIMITS[name] for name in lacking}


def test_what_is_not_asked_for_need_not_be_supported() -> None:
    plain = dataclasses.replace(WANTED, window=None, soft_cap=None, sinks=False, mla=False, v_head_dim=64)
    little = dataclasses.replace(
        EXACT, window=False, soft_cap=False, sinks=False, mla=False, v_head_dim_may_differ=False
    )
    assert little.mismatches(plain) == []


def test_any_supports_every_value() -> None:
    anything: dict[str, Any] = {
        name: "any" for name in LIMITS if isinstance(getattr(EXACT, name), frozenset) and name != "modes"
    }
    other = dataclasses.replace(WANTED, head_dim=7, v_head_dim=7, page_size=3, num_qo_heads=6, kv_dtype="float64")
    assert EXACT.mismatches(other) != []
    assert dataclasses.replace(EXACT, **anything).mismatches(other) == []


def test_a_pool_for_latents_and_one_for_heads_do_not_replace_each_other() -> None:
    def pool(mla: bool) -> KVPoolCapabilities:
        return KVPoolCapabilities(device_types="any", kv_dtypes="any", page_sizes="any", axis_order="NHD", mla=mla)

    def wanted(mla: bool) -> KVPoolRequirements:
        return KVPoolRequirements(device_type="cpu", kv_dtype="float32", page_size=16, mla=mla)

    assert codes(pool(True).mismatches(wanted(False))) == {"MHA"}
    assert codes(pool(False).mismatches(wanted(True))) == {"MLA"}
    assert pool(True).mismatches(wanted(True)) == pool(False).mismatches(wanted(False)) == []


def test_a_sampler_is_asked_for_its_device() -> None:
    sampler = SamplerCapabilities(device_types=frozenset({"cuda"}), seeded=True, cuda_graph=True)
    assert [str(reason) for reason in sampler.mismatches(SamplerRequirements(device_type="cpu"))] == [
        "DEVICE wanted cpu, supported cuda"
    ]


def test_reasons_read_well() -> None:
    reasons: list[Reason] = []
    check_member(reasons, "HEAD_DIM", 80, frozenset({256, 64, 128}), "try another")
    check_member(reasons, "DTYPE", "int8", frozenset())
    check_flag(reasons, "SINKS", True, False)
    check_flag(reasons, "WINDOW", 0, False)
    assert [str(reason) for reason in reasons] == [
        "HEAD_DIM wanted 80, supported 64, 128, 256 (try another)",
        "DTYPE wanted int8, supported none",
        "SINKS wanted yes, supported no",
        "WINDOW wanted 0, supported no",
    ]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_capability_has_a_default(kind: Any) -> None:
    for field in dataclasses.fields(kind.capabilities):
        assert field.default is field.default_factory is dataclasses.MISSING


def test_what_a_hooks_module_imports_is_light() -> None:
    names = "hookimpl, AttentionBackendSpec, KVPoolSpec, SamplerSpec, WeightLoaderSpec, ForwardMode, Reason, NoOptions"
    code = f"import sys; from core import {names}; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
