"""Distributions made on the spot: a `.dist-info` folder with entry points, and a hooks module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.hookspecs import ATTENTION, KV_POOL, SAMPLER, WEIGHT_LOADER, PluginKind
from core.plugins import PluginRegistry, discover

_SPECS = {
    ATTENTION: """AttentionBackendSpec(capabilities=AttentionCapabilities(
        device_types="any", dtypes="any", kv_dtypes="any", kv_axis_orders={axis_orders!r}, head_dims={head_dims!r},
        v_head_dim_may_differ=True, gqa_ratios="any", page_sizes="any", window=True, soft_cap=True, sinks=True,
        mla=False, modes=frozenset({modes!r}), cuda_graph=CudaGraphSupport.NEVER, needs_cpu_seq_lens=False,
        deterministic=True, batch_invariant=True), **common)""",
    KV_POOL: """KVPoolSpec(capabilities=KVPoolCapabilities(
        device_types="any", kv_dtypes={kv_dtypes!r}, page_sizes="any", axis_order={axis_order!r}, mla=False),
        **common)""",
    SAMPLER: """SamplerSpec(capabilities=SamplerCapabilities(
        device_types="any", seeded=True, cuda_graph=False), **common)""",
    WEIGHT_LOADER: """WeightLoaderSpec(capabilities=WeightLoaderCapabilities(
        suffixes=frozenset({suffixes!r})), **common)""",
}

_DEFAULTS = {
    "axis_orders": frozenset({"NHD"}),
    "head_dims": "any",
    "modes": ("extend", "decode", "mixed"),
    "kv_dtypes": "any",
    "axis_order": "NHD",
    "suffixes": (".safetensors",),
}

_HOOKS = """
from core import (
    AttentionBackendSpec, AttentionCapabilities, CudaGraphSupport, KVPoolCapabilities, KVPoolSpec, SamplerCapabilities,
    SamplerSpec, WeightLoaderCapabilities, WeightLoaderSpec, hookimpl
)
from pydantic import BaseModel, ConfigDict

class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    {options}

def probe(device):
    {probe}

@hookimpl
def {hook}():
    common = dict(
        name={spec_name!r}, api={api!r}, factory={factory!r}, auto_priority={priority!r}, options=Options, probe=probe
    )
    return [{spec}]
"""


class Site:
    """A folder on `sys.path` into which distributions are installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.distributions: set[str] = set()

    def install(
        self, distribution: str, group: str, name: str, source: str, *, version: str = "1.0", module: str | None = None
    ) -> None:
        """A distribution with one entry point. `source` is the text of its hooks module."""
        module = module or distribution.replace("-", "_").lower() + "_" + name
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        with info.joinpath("entry_points.txt").open("a") as entry_points:
            entry_points.write(f"[{group}]\n{name} = {module}\n")
        self.folder.joinpath(f"{module}.py").write_text(source)
        self.distributions.add(distribution)
        importlib.invalidate_caches()

    def plugin(
        self,
        kind: PluginKind,
        name: str,
        *,
        distribution: str | None = None,
        version: str = "1.0",
        spec_name: str | None = None,
        api: object = (1, 0),
        priority: int | None = 10,
        factory: str = "os:getcwd",
        options: str = "pass",
        probe: str = "return []",
        **capabilities: object,
    ) -> None:
        """A distribution with one sound plugin, unless an argument makes it unsound."""
        source = _HOOKS.format(
            hook=kind.hook,
            spec_name=spec_name or name,
            api=api,
            factory=factory,
            priority=priority,
            options=options,
            probe=probe,
            spec=_SPECS[kind].format(**{**_DEFAULTS, **capabilities}),
        )
        self.install(distribution or f"dist-{name}", kind.group, name, source, version=version)

    def registry(self, disabled: tuple[str, ...] = ()) -> PluginRegistry:
        """What is installed here, without what else this Python has."""
        return PluginRegistry([f for f in discover().entries if f.distribution in self.distributions], disabled)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An empty `Site`; what was imported from it is forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield Site(folder)
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]
