"""`MHAKVPool`: keys and values in pages, one row a token and head, for multi-head and grouped-query attention."""

from __future__ import annotations

from typing import final

import torch

from core import KVGroupGeometry, KVLayout, KVPool, KVPoolContext


@final
class MHAKVPool(KVPool):
    """One tensor of keys and one of values for all layers, `[num_layers, num_pages, page_size, num_kv_heads, dim]`.

    Nothing is initialised. On the CPU the system provides the memory page by page, when it is first written.
    """

    def __init__(self, context: KVPoolContext) -> None:
        super().__init__(context)
        geometry = context.geometry
        shape = (geometry.num_layers, context.num_pages, context.page_size, geometry.num_kv_heads)
        keys = torch.empty(*shape, geometry.head_dim, dtype=context.dtype, device=context.device)
        values = torch.empty(*shape, geometry.v_head_dim, dtype=context.dtype, device=context.device)
        self._layout = KVLayout(
            axis_order="NHD",
            page_size=context.page_size,
            num_kv_heads=geometry.num_kv_heads,
            head_dim=geometry.head_dim,
            v_head_dim=geometry.v_head_dim,
            dtype=context.dtype,
        )
        # Views made once, since a decode step asks for each layer's: paged for readers, by slot for writers.
        self._pages = list(zip(keys.unbind(0), values.unbind(0), strict=True))
        self._slots = [(k.flatten(0, 1), v.flatten(0, 1)) for k, v in self._pages]

    @classmethod
    def bytes_per_page(cls, geometry: KVGroupGeometry, page_size: int, dtype: torch.dtype) -> int:
        row = geometry.head_dim + geometry.v_head_dim
        return geometry.num_layers * page_size * geometry.num_kv_heads * row * dtype.itemsize

    @property
    def layout(self) -> KVLayout:
        return self._layout

    def set_kv_buffer(self, layer_id: int, out_cache_loc: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        keys, values = self._slots[layer_id]
        # On the CPU `index_copy_` over whole rows is the quickest write, also from a strided `k`.
        keys.index_copy_(0, out_cache_loc, k if k.dtype == keys.dtype else k.to(keys.dtype))
        values.index_copy_(0, out_cache_loc, v if v.dtype == values.dtype else v.to(values.dtype))

    def get_kv_buffer(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._pages[layer_id]
