"""`SamplingBatch`: the device tensors of one step's sampling rows, and the host flags that choose the cheap path."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(slots=True, kw_only=True)
class SamplingBatch:
    """Parameters of the `bs` rows that draw a token in this step. Valid for this step; samplers mutate nothing.

    Attributes:
        temperature: `[bs]` float32; 0 is greedy.
        top_k: `[bs]` int32, `vocab_size` where all are kept.
        top_p: `[bs]` float32, 1 where all are kept.
        min_p: `[bs]` float32, 0 where all are kept.
        seeds: `[bs]` int64; without meaning where `all_greedy`.
        positions: `[bs]` int64, index in its row of the token to be drawn.
        repetition_penalty: `[bs]` float32, 1 where there is none.
        frequency_penalty: `[bs]` float32, 0 where there is none.
        presence_penalty: `[bs]` float32, 0 where there is none.
        prompt_mask: `[bs, vocab_size]` bool, tokens that occur in the prompt; None unless `any_penalty`.
        output_counts: `[bs, vocab_size]` int32, occurrences in the output; None unless `any_penalty`.
        banned: (`[n]` int64 index in this batch, `[n]` int64 token id) pairs that must not be drawn yet, because a
            row is below its `min_tokens`; None if there are none.
        vocab_mask: `[bs, vocab_size]` bool, True where a grammar allows the token; None if no row has a grammar.
        logit_bias: `[bs, vocab_size]` float32; None if no row has one.
        all_greedy: every row has temperature 0.
        any_greedy: some row has.
        any_top_k: some row keeps fewer than all.
        any_top_p: likewise.
        any_min_p: likewise.
        any_penalty: some row has a penalty.
        max_top_k: the largest `top_k` of the rows that are not greedy, so that a sampler knows on the host how many
            tokens it must rank; None: not known.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    seeds: torch.Tensor
    positions: torch.Tensor
    repetition_penalty: torch.Tensor
    frequency_penalty: torch.Tensor
    presence_penalty: torch.Tensor
    prompt_mask: torch.Tensor | None = None
    output_counts: torch.Tensor | None = None
    banned: tuple[torch.Tensor, torch.Tensor] | None = None
    vocab_mask: torch.Tensor | None = None
    logit_bias: torch.Tensor | None = None
    all_greedy: bool = False
    any_greedy: bool = False
    any_top_k: bool = False
    any_top_p: bool = False
    any_min_p: bool = False
    any_penalty: bool = False
    max_top_k: int | None = None
