"""`KVPool`: the interface of the memory that holds the keys and values of one KV group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from pydantic import BaseModel

from core.mem_cache.geometry import KVGroupGeometry


@dataclass(frozen=True, slots=True)
class KVLayout:
    """How the tensors of `KVPool.get_kv_buffer` are laid out; attention backends match against it.

    `axis_order` names the axes of the key and the value tensor:

    - `NHD`: `[num_pages, page_size, num_kv_heads, head_dim]`
    - `HND`: `[num_pages, num_kv_heads, page_size, head_dim]`

    A pool with another order gives it a name of its own, which the backends that can read it declare.
    """

    axis_order: str
    page_size: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class KVPoolContext:
    """What a pool is made from. `num_pages` counts the dummy page 0."""

    geometry: KVGroupGeometry
    num_pages: int
    page_size: int
    dtype: torch.dtype
    device: torch.device
    options: BaseModel


class KVPool(ABC):
    """Owns the device tensors of one KV group, for the service's whole life.

    Slot s of the pool is the token at `s % page_size` of page `s // page_size`. Page 0 is the dummy that padding
    writes to; its content is undefined. Nothing is cleared between owners of a page: readers must not look past the
    length of a row.
    """

    def __init__(self, context: KVPoolContext) -> None:
        self.context = context

    @classmethod
    @abstractmethod
    def bytes_per_page(cls, geometry: KVGroupGeometry, page_size: int, dtype: torch.dtype) -> int:
        """Device bytes that one page of the whole group takes; asked before anything is allocated."""

    @property
    @abstractmethod
    def layout(self) -> KVLayout:
        """The layout of what `get_kv_buffer` returns; constant."""

    @abstractmethod
    def set_kv_buffer(self, layer_id: int, out_cache_loc: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Store this step's rows of one layer; the pool is mutated at exactly these slots.

        Args:
            layer_id: index of the layer within the group.
            out_cache_loc: `[num_tokens]` int64 slots, on the pool's device. Slots in page 0 may repeat; their content
                is then undefined. All others are distinct.
            k: `[num_tokens, num_kv_heads, head_dim]`, any float dtype, converted to the pool's.
            v: `[num_tokens, num_kv_heads, v_head_dim]`.

        Asynchronous: ordered on the device's current stream.
        """

    @abstractmethod
    def get_kv_buffer(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The key and the value tensor of one layer in the declared layout: views, valid for the pool's life."""
