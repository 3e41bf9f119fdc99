"""What the distribution declares."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

from core import KVPoolRequirements
from plugin_kv_pool_mha import hooks
from plugin_kv_pool_mha.pool import MHAKVPool


def test_hooks_module_is_light() -> None:
    code = "import sys, plugin_kv_pool_mha.hooks as h; list(h.core_kv_pools()); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_entry_point_and_spec_name_the_same_pool() -> None:
    (entry,) = [e for e in entry_points(group="core.kv_pool.v1") if e.value == "plugin_kv_pool_mha.hooks"]
    (spec,) = hooks.core_kv_pools()
    assert entry.name == spec.name == "mha"
    module, _, name = spec.factory.partition(":")
    assert (module, name) == (MHAKVPool.__module__, MHAKVPool.__name__)


def test_capabilities() -> None:
    (spec,) = hooks.core_kv_pools()

    def codes(device: str = "cuda", dtype: str = "bfloat16", page_size: int = 16, mla: bool = False) -> list[str]:
        wanted = KVPoolRequirements(device_type=device, kv_dtype=dtype, page_size=page_size, mla=mla)
        return [reason.code for reason in spec.capabilities.mismatches(wanted)]

    assert codes() == codes(device="cpu", dtype="float32", page_size=1) == []
    assert codes(dtype="float8_e4m3fn") == ["KV_DTYPE"]
    assert codes(mla=True) == ["MLA"]
