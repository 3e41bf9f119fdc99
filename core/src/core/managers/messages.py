"""The wire messages between the front end and the engine: one list of them a step, encoded with msgpack.

Imports no torch. Both ends run the same version, so there is no compatibility to keep.
"""

from __future__ import annotations

import msgspec

from core.sampling.params import SamplingParams


class AddRequest(msgspec.Struct, tag=True, array_like=True):
    """Queue one continuation. A request with n choices is n of these, with ids of their own.

    Attributes:
        request_id: unique among the live ones.
        prompt_ids: validated token ids, at least one.
        params: `max_tokens` and `seed` are set.
        eos_token_ids: ids that end it unless `ignore_eos`.
        extra_key: prefixes are shared only between equal keys (adapter, salt, tenant).
    """

    request_id: str
    prompt_ids: list[int]
    params: SamplingParams
    eos_token_ids: tuple[int, ...] = ()
    extra_key: str = ""


class AbortRequests(msgspec.Struct, tag=True, array_like=True):
    """Stop these, at whatever stage; unknown ids are ignored. No output follows for them."""

    request_ids: list[str]


class FlushCache(msgspec.Struct, tag=True, array_like=True):
    """Empty the prefix cache; answered by `CacheFlushed`."""

    call_id: int


class Shutdown(msgspec.Struct, tag=True, array_like=True):
    """End the engine after this step; running requests are dropped."""


ToEngine = AddRequest | AbortRequests | FlushCache | Shutdown


class Logprob(msgspec.Struct, array_like=True):
    """Log-probability of one token, beside the likeliest, likeliest first."""

    token_id: int
    logprob: float
    top: list[tuple[int, float]]


class RequestOutput(msgspec.Struct, array_like=True):
    """News of one request.

    Attributes:
        request_id: whose.
        token_ids: tokens drawn since the last news; the one that ended the request is among them.
        finish_reason: `stop`, `length` or `abort` on the last news, else None.
        stop_token_id: the end-of-sequence or stop id that ended it, or None.
        logprobs: one a token, where asked for.
        prompt_logprobs: on the first news, where asked for: one for each prompt token but the first.
        cached_tokens: prompt tokens that came from the prefix cache; on the first news.
        error: why it was aborted by the engine, or None.
    """

    request_id: str
    token_ids: list[int]
    finish_reason: str | None = None
    stop_token_id: int | None = None
    logprobs: list[Logprob] | None = None
    prompt_logprobs: list[Logprob] | None = None
    cached_tokens: int = 0
    error: str | None = None


class EngineStats(msgspec.Struct, array_like=True, kw_only=True):
    """Gauges and counters of the engine at the end of a step. Counters only grow."""

    num_running: int = 0
    num_waiting: int = 0
    num_pages: int = 0
    num_free_pages: int = 0
    num_cached_pages: int = 0
    num_held_pages: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    num_retractions: int = 0
    num_steps: int = 0


class StepNews(msgspec.Struct, tag=True, array_like=True):
    """What a step brought: news of every request that it touched, and the gauges."""

    outputs: list[RequestOutput]
    stats: EngineStats


class CacheFlushed(msgspec.Struct, tag=True, array_like=True):
    """Answer to `FlushCache`: how many pages became free."""

    call_id: int
    num_pages: int


class EngineReady(msgspec.Struct, tag=True, array_like=True, kw_only=True):
    """The engine can serve. `max_total_tokens` is what one request may hold at most."""

    max_total_tokens: int
    max_context_len: int
    vocab_size: int
    num_pages: int
    page_size: int
    load_seconds: float


class EngineFailed(msgspec.Struct, tag=True, array_like=True):
    """The engine stopped by an error; nothing follows."""

    message: str


FromEngine = StepNews | CacheFlushed | EngineReady | EngineFailed
