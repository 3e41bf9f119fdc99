"""Lets `pip install ./core ./plugins_attention_torch` work in a checkout.

The KV pool that this backend reads by default is a distribution of its own. In a checkout pip could not find it, so
the dependency points to the folder beside this one; a build from an sdist, or one with `RELEASE=1`, names it plainly.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

POOL = Path(__file__).resolve().parent.parent / "plugins" / "kv_pool_mha"


class CheckoutDependencies(MetadataHookInterface):
    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        in_checkout = POOL.is_dir() and os.environ.get("RELEASE") != "1"
        pool = f"plugin-kv-pool-mha @ {POOL.as_uri()}" if in_checkout else "plugin-kv-pool-mha"
        metadata["dependencies"] = ["core", "torch>=2.11", pool]
