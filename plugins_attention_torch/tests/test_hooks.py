"""The hooks module is light, and says what is so."""

from __future__ import annotations

import subprocess
import sys

from core import AttentionBackend
from core.hookspecs import ATTENTION
from core.plugins import discover, import_factory, load_chosen


def test_hooks_import_no_torch() -> None:
    code = (
        "import sys, plugin_attention_torch.hooks as hooks; list(hooks.core_attention_backends()); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_is_found_and_makes_a_backend() -> None:
    spec = load_chosen(discover().find(ATTENTION, "torch"))
    factory = import_factory(spec)
    assert isinstance(factory, type)
    assert issubclass(factory, AttentionBackend)
