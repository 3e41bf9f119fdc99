"""`AttentionBackend`: the interface between a model's attention layers and the kernels of a plugin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from pydantic import BaseModel

from core.errors import PluginError
from core.mem_cache.geometry import KVGroupGeometry
from core.mem_cache.kv_pool import KVPool

if TYPE_CHECKING:
    from core.attention.radix_attention import RadixAttention
    from core.model_executor.forward_batch import ForwardBatch


@dataclass(frozen=True, slots=True)
class BackendContext:
    """All that a backend is made from; it never sees the model runner.

    Attributes:
        geometry: shape of the KV group that the instance serves.
        page_size: tokens a page.
        kv_pool: the group's pool; the backend only reads it.
        page_table: `[max_rows, max_pages]` int32 on `device`: page ids of every row, in order. Core mutates it in
            place between steps; it never moves. Entries past a row's pages are undefined but valid page ids.
        dtype: of queries and outputs.
        max_bs: most rows of a batch.
        max_num_tokens: most tokens of a batch.
        max_context_len: most tokens of a row.
        device: where everything lives.
        options: an instance of the spec's options model.
    """

    geometry: KVGroupGeometry
    page_size: int
    kv_pool: KVPool
    page_table: torch.Tensor
    dtype: torch.dtype
    max_bs: int
    max_num_tokens: int
    max_context_len: int
    device: torch.device
    options: BaseModel


class AttentionBackend(ABC):
    """Attention over the paged memory of one KV group.

    What every implementation must hold:

    - Core has written this step's keys and values to the pool at `batch.out_cache_loc` before `forward`; a backend
      only reads the pool. `k` and `v` are this step's new rows, for kernels that prefer them.
    - The query at position i sees key j when j <= i and, with window W, j > i - W.
    - scores = scale * q.k; with soft cap c, c * tanh(scores / c); softmax in float32 or better; a sink adds a logit
      to the denominator.
    - Pages of a row are in any order and may be shared between rows, also with rows of the same batch. Anything may
      lie in slots past `seq_lens`, NaN too; none of it may reach the result.
    - A row of length 0 gives zeros. Every output element is written.
    - No host synchronisation, and no host copy is read that the capabilities did not declare.
    """

    def __init__(self, context: BackendContext) -> None:
        self.context = context

    @abstractmethod
    def init_forward_metadata(self, batch: ForwardBatch) -> None:
        """Derive what the kernels need from `batch`, before each eager forward; valid until the next call."""

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Allocate every buffer that a captured kernel will read. Once, before the first capture."""
        raise self._no_graphs()

    def init_forward_metadata_capture_cuda_graph(self, batch: ForwardBatch) -> None:
        """Point the metadata at those buffers, before one batch size is captured."""
        raise self._no_graphs()

    def init_forward_metadata_replay_cuda_graph(self, batch: ForwardBatch) -> None:
        """Rewrite those buffers in place before a replay: no allocation, no synchronisation."""
        raise self._no_graphs()

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        """The length that padded rows get in a captured batch."""
        raise self._no_graphs()

    @final
    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: RadixAttention, batch: ForwardBatch
    ) -> torch.Tensor:
        """Attention of one layer, by mode.

        Args:
            q: `[num_tokens, num_qo_heads, head_dim]`.
            k: `[num_tokens, num_kv_heads, head_dim]`, already in the pool.
            v: `[num_tokens, num_kv_heads, v_head_dim]`, already in the pool.
            layer: gives `layer_id` and `sinks`.
            batch: the batch that the metadata was initialised with.

        Returns:
            `[num_tokens, num_qo_heads, v_head_dim]` in q's dtype; a fresh tensor.
        """
        if batch.forward_mode.is_decode():
            return self.forward_decode(q, k, v, layer, batch)
        return self.forward_extend(q, k, v, layer, batch)

    @abstractmethod
    def forward_decode(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: RadixAttention, batch: ForwardBatch
    ) -> torch.Tensor:
        """`forward` for `DECODE`: one token a row."""

    @abstractmethod
    def forward_extend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: RadixAttention, batch: ForwardBatch
    ) -> torch.Tensor:
        """`forward` for `EXTEND` and `MIXED`: any number of new tokens a row, after any prefix."""

    def _no_graphs(self) -> PluginError:
        return PluginError(
            f"{type(self).__name__} was asked for a CUDA graph and implements none: "
            "declare cuda_graph=CudaGraphSupport.NEVER or override the *_cuda_graph methods"
        )
