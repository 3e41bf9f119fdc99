"""The sampler of core is declared like everyone else's."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points

import pytest

from core.hookspecs import SAMPLER
from core.sampling.hooks import core_samplers
from core.sampling.sampler import Sampler


def test_the_entry_point_names_the_spec() -> None:
    (spec,) = core_samplers()
    (entry,) = entry_points(group=SAMPLER.group, name=spec.name)
    assert import_module(entry.value).core_samplers is core_samplers
    module, _, name = spec.factory.partition(":")
    assert issubclass(getattr(import_module(module), name), Sampler)
    assert spec.capabilities.seeded


@pytest.mark.parametrize("module", ["hooks", "validate", "params", "rows", "capabilities"])
def test_light_modules_import_no_torch(module: str) -> None:
    code = f"import sys, core.sampling.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
