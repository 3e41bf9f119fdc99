"""`ScheduleBatch`: one step as the scheduler sees it. Host objects only; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from core.managers.request import Req
from core.mem_cache.page_update import PageUpdate
from core.model_executor.forward_mode import ForwardMode
from core.model_executor.worker_batch import ModelWorkerBatch
from core.sampling.rows import RowInit


@dataclass(slots=True)
class Extend:
    """One extending row: `num_new` tokens after `prefix_len` that are in the cache.

    `is_last` says that it ends the prompt, so that the row draws a token, unless the request wants none.
    """

    req: Req
    prefix_len: int
    num_new: int
    is_last: bool
    starts: bool

    @property
    def samples(self) -> bool:
        return self.is_last and self.req.max_tokens > 0


@dataclass(slots=True)
class ScheduleBatch:
    """The requests of one step: those that extend, then those that decode."""

    step_id: int
    extends: list[Extend] = field(default_factory=list)
    decodes: list[Req] = field(default_factory=list)

    @property
    def forward_mode(self) -> ForwardMode:
        if not self.extends:
            return ForwardMode.DECODE
        return ForwardMode.MIXED if self.decodes else ForwardMode.EXTEND

    def to_worker_batch(self, page_updates: tuple[PageUpdate, ...]) -> ModelWorkerBatch:
        """What the worker needs of it. Called once, after the scheduler has counted the step's tokens as in flight."""
        extends, decodes = self.extends, self.decodes
        num_extends = len(extends)
        rows = [extend.req.lease.row for extend in extends]  # type: ignore[union-attr]
        rows += [req.lease.row for req in decodes]  # type: ignore[union-attr]
        seq_lens = [extend.prefix_len + extend.num_new for extend in extends] + [req.kv_len for req in decodes]
        chunks = [extend.req.token_ids()[extend.prefix_len :][: extend.num_new] for extend in extends]
        below_min_tokens, logprobs = [], {}
        for index, req in enumerate([extend.req for extend in extends] + decodes):
            params = req.request.params
            if params.min_tokens or params.logprobs is not None:
                if index < num_extends and not extends[index].samples:
                    continue
                if req.num_drawn <= params.min_tokens:
                    below_min_tokens.append(index)
                if params.logprobs is not None:
                    logprobs[index] = params.logprobs
        return ModelWorkerBatch(
            step_id=self.step_id,
            forward_mode=self.forward_mode,
            req_pool_indices=np.array(rows, np.int32),
            seq_lens=np.array(seq_lens, np.int32),
            extend_seq_lens=np.array([extend.num_new for extend in extends] + [1] * len(decodes), np.int32),
            num_extends=num_extends,
            input_ids=np.concatenate(chunks) if chunks else np.empty(0, np.int32),
            sample=np.array([extend.samples for extend in extends] + [True] * len(decodes), np.bool_),
            below_min_tokens=tuple(below_min_tokens),
            page_updates=page_updates,
            new_rows=tuple(_row_init(extend.req) for extend in extends if extend.starts),
            logprobs=logprobs,
            prompt_logprobs={
                index: (extend.req.request.params.prompt_logprobs or 0, _successor(extend))
                for index, extend in enumerate(extends)
                if extend.req.prompt_logprobs is not None
            },
        )


def _row_init(req: Req) -> RowInit:
    assert req.lease is not None
    return RowInit(
        row=req.lease.row,
        params=req.request.params,
        eos_token_ids=req.request.eos_token_ids,
        prompt_ids=req.prompt_ids,
        output_ids=np.asarray(req.output_ids, np.int32),
    )


def _successor(extend: Extend) -> int:
    """The prompt token after the extend's last input token, or -1."""
    end = extend.prefix_len + extend.num_new
    return int(extend.req.prompt_ids[end]) if end < extend.req.prompt_len else -1
