"""The admission rule: what passes it can always run to its end. Shared by the server and `core.Engine`.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index

import msgspec

from core.errors import InvalidRequest
from core.managers.messages import EngineReady
from core.sampling.params import SamplingParams
from core.sampling.validate import validate_sampling_params


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that can run: its checked ids, and its parameters with `max_tokens` set."""

    prompt_ids: list[int]
    params: SamplingParams


def admit(prompt: Sequence[int], params: SamplingParams, limits: EngineReady, *, has_tokenizer: bool) -> Admission:
    """Check one request.

    With p prompt tokens, `1 <= p` and `p + max_tokens <= limit` must hold, the limit being the lesser of the context
    and the KV pool. `max_tokens` None becomes all that fits.

    Raises `InvalidRequest`, with the field at fault in `param`.
    """
    validate_sampling_params(params, vocab_size=limits.vocab_size)
    if params.stop and not has_tokenizer:
        raise InvalidRequest(
            "Stop strings were given, but this model has no tokenizer to make text with; use stop_token_ids",
            param="stop",
        )
    prompt_ids = _checked_ids(prompt, limits.vocab_size)
    limit = min(limits.max_context_len, limits.max_total_tokens)
    room = limit - len(prompt_ids)
    wanted = 1 if params.max_tokens is None else params.max_tokens
    if wanted > room:
        asked = "none is left for a new one" if params.max_tokens is None else f"max_tokens is {params.max_tokens}"
        raise InvalidRequest(
            f"The prompt has {len(prompt_ids)} tokens and {asked}, but a request may have at most {limit} together "
            f"(context length {limits.max_context_len}, KV pool {limits.max_total_tokens}); "
            f"shorten the prompt{'' if params.max_tokens is None else ' or lower max_tokens'}",
            param="prompt" if room < 1 or params.max_tokens is None else "max_tokens",
        )
    if params.max_tokens is None:
        params = msgspec.structs.replace(params, max_tokens=room)
    return Admission(prompt_ids, params)


def _checked_ids(prompt: Sequence[int], vocab_size: int) -> list[int]:
    """The ids as plain integers, each in the vocabulary."""
    try:
        ids = [index(token) for token in prompt]  # also of numpy's integers
    except TypeError as error:
        raise InvalidRequest(f"A prompt is a text or a list of integers ({error})", param="prompt") from None
    if not ids:
        raise InvalidRequest("The prompt is empty: it needs at least one token", param="prompt")
    if min(ids) < 0 or max(ids) >= vocab_size:
        position, wrong_id = next((i, token) for i, token in enumerate(ids) if not 0 <= token < vocab_size)
        raise InvalidRequest(
            f"Token id {wrong_id} at position {position} is not in the vocabulary: ids run from 0 to {vocab_size - 1}",
            param="prompt",
        )
    return ids
