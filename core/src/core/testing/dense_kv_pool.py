"""`DenseKVPool`: the plainest KV pool, for tests that should not depend on a plugin's."""

from __future__ import annotations

from typing import final

import torch

from core.mem_cache.geometry import KVGroupGeometry
from core.mem_cache.kv_pool import KVLayout, KVPool, KVPoolContext


@final
class DenseKVPool(KVPool):
    """One tensor of keys and one of values for each layer, in NHD order."""

    def __init__(self, context: KVPoolContext) -> None:
        super().__init__(context)
        geometry = context.geometry
        shape = (geometry.num_layers, context.num_pages, context.page_size, geometry.num_kv_heads)
        self._k = torch.zeros(*shape, geometry.head_dim, dtype=context.dtype, device=context.device)
        self._v = torch.zeros(*shape, geometry.v_head_dim, dtype=context.dtype, device=context.device)

    @classmethod
    def bytes_per_page(cls, geometry: KVGroupGeometry, page_size: int, dtype: torch.dtype) -> int:
        line = geometry.num_kv_heads * (geometry.head_dim + geometry.v_head_dim)
        return geometry.num_layers * page_size * line * dtype.itemsize

    @property
    def layout(self) -> KVLayout:
        geometry = self.context.geometry
        return KVLayout(
            axis_order="NHD",
            page_size=self.context.page_size,
            num_kv_heads=geometry.num_kv_heads,
            head_dim=geometry.head_dim,
            v_head_dim=geometry.v_head_dim,
            dtype=self.context.dtype,
        )

    def set_kv_buffer(self, layer_id: int, out_cache_loc: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        self._k[layer_id].flatten(0, 1)[out_cache_loc] = k.to(self._k.dtype)
        self._v[layer_id].flatten(0, 1)[out_cache_loc] = v.to(self._v.dtype)

    def get_kv_buffer(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._k[layer_id], self._v[layer_id]
