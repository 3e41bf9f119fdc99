"""`SamplingParams`: what a request asks of generation. Imports no torch."""

from __future__ import annotations

import msgspec


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one request is to be continued. Frozen, and serialised as it is between processes.

    Attributes:
        max_tokens: most new tokens; None means up to the model's context and the pool.
        min_tokens: end-of-sequence, stop ids and stop strings are not honoured before this many new tokens.
        temperature: 0 is greedy.
        top_k: keep the k likeliest; 0 or -1 keeps all.
        top_p: keep the smallest set of the likeliest whose probability reaches p; 0 keeps the likeliest alone.
        min_p: drop tokens less likely than min_p times the likeliest.
        repetition_penalty: divides positive and multiplies negative logits of tokens in the prompt or output.
        frequency_penalty: subtracted from a logit once for each occurrence in the output.
        presence_penalty: subtracted from the logits of tokens that occur in the output.
        stop: texts that end the request; not part of the output.
        stop_token_ids: ids that end the request.
        ignore_eos: do not end at the model's end-of-sequence ids.
        logit_bias: added to the logits of these ids.
        seed: makes the draw reproducible; None draws from a fresh seed.
        n: how many independent continuations.
        logprobs: None for none, else how many of the likeliest tokens to report beside each chosen one.
        prompt_logprobs: the same for the prompt's tokens.
        skip_special_tokens: leave special tokens out of the text.
        include_stop: keep the matched stop string in the text.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    include_stop: bool = False
