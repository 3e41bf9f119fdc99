"""What a caller of the engine gets back, in text and tokens. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token with its natural-log probability under the model's own distribution.

    Attributes:
        token_id: the token.
        token: its text by itself; a part of a character shows as the replacement character.
        utf8: its bytes, which may be a part of a character.
        logprob: its log-probability; None for a prompt's first token, which has none.
        top: the likeliest tokens at its place, likeliest first, as (token id, text, bytes, log-probability).
    """

    token_id: int
    token: str
    utf8: bytes
    logprob: float | None
    top: tuple[tuple[int, str, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOutput:
    """News of one choice of a request: a part of a stream, or, merged, the whole.

    Attributes:
        index: which of the n choices.
        text: new text. Complete characters only, and never a part of a stop string.
        token_ids: tokens that were drawn since the last news, whether their text is out yet or not.
        logprobs: one a token of `token_ids`, where asked for.
        prompt_logprobs: one a prompt token, on the first news, where asked for.
        finish_reason: `stop`, `length` or `abort` on the last news, else None.
        stop_reason: the stop string or stop id that ended it, or None; end-of-sequence ids are not reported.
        prompt_tokens: of the request.
        completion_tokens: drawn so far, in this choice.
        cached_tokens: prompt tokens that came from the prefix cache.
        error: why the engine gave the request up, or None.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    error: str | None = None


@dataclass(slots=True, kw_only=True)
class Completion:
    """One finished choice, whole: what `Engine.generate` returns.

    Attributes as in `GenerationOutput`.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
