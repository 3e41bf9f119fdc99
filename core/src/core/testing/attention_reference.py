"""Attention over paged memory twice, written for reading: in float64, the truth; and eagerly in the queries' own dtype,
which says how far from the truth that dtype may be.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch


def reference_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    page_size: int,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """What every attention backend should return, in float64 on the CPU.

    Args:
        q: `[num_tokens, num_qo_heads, head_dim]`, the rows' new tokens one row after the other.
        k_cache: `[num_pages, page_size, num_kv_heads, head_dim]`, the new tokens' keys included.
        v_cache: `[num_pages, page_size, num_kv_heads, v_head_dim]`.
        page_table: `[max_rows, max_pages]` page ids of each row.
        req_pool_indices: `[bs]` rows of the page table.
        seq_lens: `[bs]` tokens of each row, new ones included; the tokens of a row of length 0 are padding.
        extend_seq_lens: `[bs]` new tokens of each row, its last ones; 1 each in a decode step.
        page_size: tokens a page.
        scale: factor on q.k.
        window: a query sees that many keys, its own included; None for all before it.
        soft_cap: c in c * tanh(scores / c), or None.
        sinks: `[num_qo_heads]` logits that take part in the softmax and have no value, or None.

    Returns:
        `[num_tokens, num_qo_heads, v_head_dim]` float64; zeros for the tokens of a row of length 0.
    """
    out = torch.zeros(*q.shape[:2], v_cache.shape[-1], dtype=torch.float64)
    group = q.shape[1] // k_cache.shape[2]
    for tokens, slots in _rows(page_table, req_pool_indices, seq_lens, extend_seq_lens, page_size):
        visible = visible_keys(len(tokens), len(slots), window)
        for head in range(q.shape[1]):
            keys = k_cache.flatten(0, 1)[slots, head // group].cpu().double()
            values = v_cache.flatten(0, 1)[slots, head // group].cpu().double()
            scores = scale * (q[tokens, head].cpu().double() @ keys.T)
            if soft_cap is not None:
                scores = soft_cap * torch.tanh(scores / soft_cap)
            logits = scores.masked_fill(~visible, float("-inf"))
            if sinks is not None:
                sink = sinks[head].detach().cpu().double().expand(len(tokens), 1)
                logits = torch.cat((logits, sink), dim=1)
            weights = logits.softmax(dim=1)[:, : len(slots)]
            out[tokens, head] = weights @ values
    return out


def eager_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    page_size: int,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same as a model's eager code computes it: products in q's dtype, softmax in float32.

    Arguments as in `reference_attention`; the result is in q's dtype, on the CPU.
    """
    out = torch.zeros(*q.shape[:2], v_cache.shape[-1], dtype=q.dtype)
    num_kv_heads, dtype = k_cache.shape[2], q.dtype
    group = q.shape[1] // num_kv_heads
    for tokens, slots in _rows(page_table, req_pool_indices, seq_lens, extend_seq_lens, page_size):
        hidden = ~visible_keys(len(tokens), len(slots), window)
        keys = k_cache.flatten(0, 1)[slots].cpu().to(dtype).transpose(0, 1).repeat_interleave(group, dim=0)
        values = v_cache.flatten(0, 1)[slots].cpu().to(dtype).transpose(0, 1).repeat_interleave(group, dim=0)
        scores = torch.matmul(q[tokens].cpu().transpose(0, 1), keys.transpose(1, 2)) * scale
        if soft_cap is not None:
            scores = soft_cap * torch.tanh(scores / soft_cap)
        logits = scores.float().masked_fill(hidden, float("-inf"))
        if sinks is not None:
            sink = sinks.detach().cpu().float().view(-1, 1, 1).expand(-1, len(tokens), 1)
            logits = torch.cat((logits, sink), dim=-1)
        weights = logits.softmax(dim=-1)[..., : len(slots)].to(dtype)
        out[tokens] = torch.matmul(weights, values).transpose(0, 1)
    return out


def visible_keys(num_queries: int, num_keys: int, window: int | None) -> torch.Tensor:
    """`[num_queries, num_keys]` bool: which keys the last `num_queries` tokens of a row of `num_keys` tokens see."""
    query = torch.arange(num_keys - num_queries, num_keys).unsqueeze(1)
    key = torch.arange(num_keys)
    visible = key <= query
    if window is not None:
        visible &= key > query - window
    return visible


def _rows(
    page_table: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    page_size: int,
) -> Iterator[tuple[range, torch.Tensor]]:
    """For each row that has tokens: the indices of its queries in the batch, and the slots of all its tokens."""
    table = page_table.cpu()
    start = 0
    for row, seq_len, num_new in zip(
        req_pool_indices.tolist(), seq_lens.tolist(), extend_seq_lens.tolist(), strict=True
    ):
        if seq_len > 0:
            token = torch.arange(seq_len)
            slots = table[row, token // page_size].long() * page_size + token % page_size
            yield range(start, start + num_new), slots.to(req_pool_indices.device)
        start += num_new
