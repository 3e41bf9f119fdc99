"""`ModelWorkerBatch` and `StepOutput`: what the scheduler hands to a worker for one step, and what comes back.

Host objects only, frozen and picklable: they cross a thread or process boundary as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from core.mem_cache.page_update import PageUpdate
from core.model_executor.forward_mode import ForwardMode
from core.sampling.rows import RowInit

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWorkerBatch:
    """One step. In `MIXED` the extending rows come first, then the decoding ones.

    Attributes:
        step_id: counts the steps.
        forward_mode: kind of step.
        req_pool_indices: `[bs]` rows; row 0 is the dummy and never listed.
        seq_lens: `[bs]` tokens of each row, this step's included.
        extend_seq_lens: `[bs]` new tokens of each row; 1 for a decoding row.
        num_extends: how many of the rows, from the first on, extend.
        input_ids: the extending rows' new tokens, concatenated. A decoding row's input is the token that it drew last,
            which lives on the device.
        sample: `[bs]` bool, rows that draw a token: all but chunks that are not a prompt's last.
        below_min_tokens: indices in this batch of the sampling rows that have not reached their `min_tokens`.
        page_updates: one for each KV group.
        new_rows: rows that start with this step.
        logprobs: index in this batch of a sampling row -> how many of the likeliest to report.
        prompt_logprobs: index in this batch of an extending row -> (how many of the likeliest to report, the token
            that follows the row's last input token in the prompt, or -1 if none does).
    """

    step_id: int
    forward_mode: ForwardMode
    req_pool_indices: Int32Array
    seq_lens: Int32Array
    extend_seq_lens: Int32Array
    num_extends: int
    input_ids: Int32Array
    sample: npt.NDArray[np.bool_]
    below_min_tokens: tuple[int, ...] = ()
    page_updates: tuple[PageUpdate, ...] = ()
    new_rows: tuple[RowInit, ...] = ()
    logprobs: dict[int, int] = field(default_factory=dict)
    prompt_logprobs: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def bs(self) -> int:
        return len(self.req_pool_indices)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural-log probabilities under the model's own distribution (before penalties and temperature).

    Attributes:
        token_id: the token.
        logprob: its log-probability.
        top_ids: the likeliest tokens, likeliest first.
        top_logprobs: theirs.
    """

    token_id: int
    logprob: float
    top_ids: list[int]
    top_logprobs: list[float]


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one step drew.

    Attributes:
        step_id: of the batch.
        token_ids: the drawn tokens, in the order of the batch's rows with `sample`.
        logprobs: index in the batch -> of the drawn token, where asked for.
        prompt_logprobs: index in the batch -> one for each of the row's input tokens that has a successor in the
            prompt: the log-probability of that successor.
    """

    step_id: int
    token_ids: list[int]
    logprobs: dict[int, TokenLogprobs] = field(default_factory=dict)
    prompt_logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)
