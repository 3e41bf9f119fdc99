"""`KVGroup`: the device side of one KV group: its pool, page table and attention backends."""

from __future__ import annotations

from dataclasses import dataclass

from core.attention.backend import AttentionBackend
from core.mem_cache.device_page_table import PageTable
from core.mem_cache.geometry import KVGroupGeometry
from core.mem_cache.kv_pool import KVPool


@dataclass(frozen=True, slots=True)
class KVGroup:
    """Lives as long as the service.

    `decode_backend` and `extend_backend` may be the same object. The `needs_cpu_seq_lens` flags are those that the
    backends declared.
    """

    geometry: KVGroupGeometry
    pool: KVPool
    page_table: PageTable
    decode_backend: AttentionBackend
    extend_backend: AttentionBackend
    decode_needs_cpu_seq_lens: bool
    extend_needs_cpu_seq_lens: bool
