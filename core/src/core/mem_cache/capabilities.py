"""What a configuration asks of a KV memory pool, and what a pool says that it does."""

from __future__ import annotations

from dataclasses import dataclass

from core.specs import Anything, PluginSpec, Reason, check_flag, check_member


@dataclass(frozen=True, slots=True, kw_only=True)
class KVPoolRequirements:
    """What one KV group asks of its pool. dtypes by torch's name without the prefix."""

    device_type: str
    kv_dtype: str
    page_size: int
    mla: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KVPoolCapabilities:
    """What a KV pool does. Every field is required.

    Attributes:
        device_types: torch's names of device types.
        kv_dtypes: dtypes in which it can store keys and values.
        page_sizes: tokens a page.
        axis_order: the `KVLayout.axis_order` that its buffers have; attention backends match against it.
        mla: whether it stores compressed latents instead of keys and values.
    """

    device_types: frozenset[str] | Anything
    kv_dtypes: frozenset[str] | Anything
    page_sizes: frozenset[int] | Anything
    axis_order: str
    mla: bool

    def mismatches(self, requirements: KVPoolRequirements) -> list[Reason]:
        """Every reason why this pool cannot serve `requirements`; empty means that it can."""
        want, reasons = requirements, list[Reason]()
        check_member(reasons, "DEVICE", want.device_type, self.device_types)
        check_member(reasons, "KV_DTYPE", want.kv_dtype, self.kv_dtypes, "try another --kv-cache-dtype")
        check_member(reasons, "PAGE_SIZE", want.page_size, self.page_sizes, "try another --page-size")
        check_flag(reasons, "MLA", want.mla, self.mla)
        check_flag(reasons, "MHA", not want.mla, not self.mla)
        return reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class KVPoolSpec(PluginSpec[KVPoolCapabilities]):
    """A KV memory pool. The factory is the `KVPool` subclass itself, called with a `KVPoolContext`."""
