"""`Req`: one continuation on its way through the engine. Host objects only; imports no torch."""

from __future__ import annotations

from enum import Enum

import numpy as np
import numpy.typing as npt

from core.managers.messages import AddRequest, Logprob
from core.mem_cache.kv_memory import Lease


class ReqStage(Enum):
    """Where a request is. WAITING may be entered again, by a retraction; FINISHED is final."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


class Req:
    """One continuation. Owned and mutated by the scheduler alone.

    Lengths, with `p` prompt tokens, `o` drawn tokens that the host has read and `f` in flight:

    - `num_tokens` = p + o + f is the length that the next decode step will see, its input included;
    - `kv_len` counts the tokens whose keys and values some launched step writes; it trails `num_tokens` by the tokens
      that are still to be prefilled, or by one while decoding.

    Attributes:
        request: as it came.
        stage: where it is.
        output_ids: drawn tokens that the host has read.
        num_inflight: tokens that launched steps draw and the host has not read: 0 or 1, and 2 between the launch of
            an overlapped step and the reading of the one before it.
        kv_len: see above.
        lease: the row and pages that it holds; None while it waits.
        cached_tokens: prompt tokens that the prefix cache gave when it was first admitted.
        overtaken: how often a later request was admitted before it.
        reported: whether its first news has gone out.
        prompt_logprobs: gathered so far; None if nobody asked, or they have gone out.
    """

    __slots__ = (
        "cached_tokens",
        "finish_ids",
        "kv_len",
        "lease",
        "max_tokens",
        "num_inflight",
        "output_ids",
        "overtaken",
        "prompt_ids",
        "prompt_len",
        "prompt_logprobs",
        "reported",
        "request",
        "request_id",
        "stage",
    )

    def __init__(self, request: AddRequest) -> None:
        params = request.params
        assert params.max_tokens is not None
        self.request = request
        self.request_id = request.request_id
        self.prompt_ids: npt.NDArray[np.int32] = np.asarray(request.prompt_ids, np.int32)
        self.prompt_len = len(self.prompt_ids)
        self.max_tokens = params.max_tokens
        self.finish_ids = frozenset(params.stop_token_ids) | frozenset(
            () if params.ignore_eos else request.eos_token_ids
        )
        self.stage = ReqStage.WAITING
        self.output_ids: list[int] = []
        self.num_inflight = 0
        self.kv_len = 0
        self.lease: Lease | None = None
        self.cached_tokens = 0
        self.overtaken = 0
        self.reported = False
        self.prompt_logprobs: list[Logprob] | None = None if params.prompt_logprobs is None else []

    @property
    def num_tokens(self) -> int:
        """Tokens of the row, drawn ones in flight included."""
        return self.prompt_len + len(self.output_ids) + self.num_inflight

    @property
    def num_drawn(self) -> int:
        """Tokens drawn, those in flight included."""
        return len(self.output_ids) + self.num_inflight

    @property
    def num_remaining(self) -> int:
        """Tokens that may still be drawn."""
        return self.max_tokens - self.num_drawn

    def token_ids(self) -> npt.NDArray[np.int32]:
        """Prompt and output as the host knows them, `[prompt_len + len(output_ids)]`."""
        if not self.output_ids:
            return self.prompt_ids
        return np.concatenate([self.prompt_ids, np.asarray(self.output_ids, np.int32)])
