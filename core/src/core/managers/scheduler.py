"""The scheduler: decides what each step runs. Host only; imports no torch and never waits for the device.

A request waits, extends in one or more chunks, decodes, and finishes. It works on known lengths: a step is scheduled
before the tokens of the step before it have been read, so that the device never waits for the host.
"""

from __future__ import annotations

from collections import deque

from core.config import SchedulerConfig
from core.managers.request import Req, ReqStage
from core.managers.schedule_batch import Extend, ScheduleBatch
from core.managers.schedule_policy import FirstComeFirstServed, LongestPrefixMatch, NewTokenRatio, SchedulePolicy
from core.mem_cache.kv_memory import KVMemory


class Scheduler:
    """Owns every live request and the memory's books."""

    RETRY_STEPS = 8
    """Steps until admission is tried again after memory ran short, unless a request ends before."""

    def __init__(self, config: SchedulerConfig, memory: KVMemory) -> None:
        self.memory = memory
        self.waiting: deque[Req] = deque()
        self.running: list[Req] = []  # in PREFILL or DECODE, in the order of admission
        self.live: dict[str, Req] = {}
        self.num_retractions = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self._retracted: deque[Req] = deque()  # WAITING again; go before all others
        self._max_running = config.max_running_requests
        self._chunk_size = config.chunked_prefill_size
        self._ratio = NewTokenRatio(config.new_token_ratio)
        self._policy: SchedulePolicy = (
            LongestPrefixMatch(memory) if config.schedule_policy == "lpm" else FirstComeFirstServed()
        )
        self._step_id = 0
        self._retry_at = 0

    # -- requests ------------------------------------------------------------------------------------------------

    def add(self, req: Req) -> None:
        """Queue a request that passed validation: alone, it fits the context and the pool."""
        self.live[req.request_id] = req
        self.waiting.append(req)

    def abort(self, request_id: str) -> None:
        """Drop a request at whatever stage. Unknown ids are ignored: it may just have finished."""
        req = self.live.get(request_id)
        if req is None:
            return
        if req.stage is ReqStage.WAITING:
            queue = self._retracted if req in self._retracted else self.waiting
            queue.remove(req)
        self.finish(req)

    def finish(self, req: Req) -> None:
        """End a request and give back what it holds; its full pages stay in the prefix cache.

        A step in flight may still hold one of its rows: the token that it draws is discarded.
        """
        if req.lease is not None:
            self._release(req)
            self._retry_at = 0
        req.stage = ReqStage.FINISHED
        del self.live[req.request_id]

    @property
    def num_waiting(self) -> int:
        return len(self.waiting) + len(self._retracted)

    # -- one step ------------------------------------------------------------------------------------------------

    def must_read_first(self) -> bool:
        """Whether requests have to be retracted, which needs the tokens in flight to be read before."""
        return self._pages_needed() > self.memory.available_pages

    def schedule(self) -> ScheduleBatch | None:
        """The next step, or None if there is nothing to run. Its tokens count as in flight from here on.

        The books already hold what the step will have done, so it must be launched.
        """
        while self._pages_needed() > self.memory.available_pages:
            self._retract()
        self._step_id += 1
        batch = ScheduleBatch(self._step_id)
        decodes = [req for req in self.running if req.stage is ReqStage.DECODE and req.num_drawn < req.max_tokens]
        grown = self.memory.grow_by_one([req.lease for req in decodes if req.lease and self._page_is_due(req)])
        assert grown, "there were pages a moment ago"
        budget = self._chunk_size
        for req in self.running:
            if req.stage is ReqStage.PREFILL and budget > 0:
                budget -= self._extend(batch, req, budget, starts=False)
        batch.decodes = decodes
        for req in decodes:
            req.kv_len += 1
            req.num_inflight += 1
        if decodes:
            self._ratio.step()
        if budget > 0 and self.num_waiting:
            self._admit(batch, budget)
        return batch if batch.extends or decodes else None

    def _page_is_due(self, req: Req) -> bool:
        """Whether the next token of a decoding request starts a page."""
        return req.lease is not None and req.kv_len >= req.lease.num_pages * self.memory.page_size

    def _pages_needed(self) -> int:
        """Pages that the running requests take in the next step."""
        num_pages, budget = 0, self._chunk_size
        for req in self.running:
            if req.stage is ReqStage.DECODE:
                num_pages += req.num_drawn < req.max_tokens and self._page_is_due(req)
            elif budget > 0 and req.lease is not None:
                num_new = min(budget, req.num_tokens - req.kv_len)
                num_pages += max(0, self.memory.pages_for(req.kv_len + num_new) - req.lease.num_pages)
                budget -= num_new
        return num_pages

    def _extend(self, batch: ScheduleBatch, req: Req, budget: int, *, starts: bool) -> int:
        """Put the next chunk of a request, at most `budget` tokens, into the batch; how many tokens it has.

        There are pages for it: `schedule` retracted until there were, and admission counted the whole prompt.
        """
        assert req.lease is not None
        tokens = req.token_ids()
        num_new = min(budget, len(tokens) - req.kv_len)
        end = req.kv_len + num_new
        grown = self.memory.grow(req.lease, end)
        assert grown, "there were pages a moment ago"
        extend = Extend(req, req.kv_len, num_new, is_last=end == len(tokens), starts=starts)
        batch.extends.append(extend)
        req.kv_len = end
        self.memory.publish(req.lease, tokens[:end])
        if extend.is_last:
            req.stage = ReqStage.DECODE
            req.num_inflight += extend.samples
        return num_new

    # -- admission -----------------------------------------------------------------------------------------------

    def _admit(self, batch: ScheduleBatch, budget: int) -> None:
        """Start waiting requests while rows, tokens and memory last. Nobody is skipped for being large."""
        if len(self.running) >= self._max_running or (self.running and self._step_id < self._retry_at):
            return
        reserved = sum(self._pages_expected(req) for req in self.running)
        candidates = [*self._retracted, *self._policy.order(self.waiting)]
        admitted: list[Req] = []
        for req in candidates:
            if budget <= 0 or len(self.running) >= self._max_running:
                break
            if not self._open(req, reserved):
                self._retry_at = self._step_id + self.RETRY_STEPS
                break
            budget -= self._extend(batch, req, budget, starts=True)
            reserved += self._pages_expected(req)
            admitted.append(req)
        if admitted:
            self._leave_queue(admitted)

    def _open(self, req: Req, reserved: int) -> bool:
        """Take a row and lock the cached prefix, if the rest of the prompt and the expected output fit as well."""
        tokens = req.token_ids()
        use_cache = req.prompt_logprobs is None
        lease = self.memory.open(tokens, req.request.extra_key, use_cache=use_cache)
        if lease is None:
            return False
        expected = int(req.num_remaining * self._ratio.value)
        wanted = self.memory.pages_for(len(tokens) + max(expected, 1)) - lease.num_pages
        if self.running and wanted + reserved > self.memory.available_pages:
            self.memory.close(lease, tokens[:0])
            return False
        req.lease = lease
        req.kv_len = lease.num_cached_tokens
        req.stage = ReqStage.PREFILL
        if not req.output_ids:
            req.cached_tokens = lease.num_cached_tokens
            self.prompt_tokens += req.prompt_len
            self.cached_tokens += lease.num_cached_tokens
        self.running.append(req)
        return True

    def _pages_expected(self, req: Req) -> int:
        """Pages that a running request is expected to take beyond those that it has."""
        assert req.lease is not None
        expected = int(req.num_remaining * self._ratio.value)
        return max(0, self.memory.pages_for(req.num_tokens + expected) - req.lease.num_pages)

    def _leave_queue(self, admitted: list[Req]) -> None:
        ids = {id(req) for req in admitted}
        last = max((i for i, req in enumerate(self.waiting) if id(req) in ids), default=-1)
        stay: list[Req] = []
        for _ in range(last + 1):
            req = self.waiting.popleft()
            if id(req) not in ids:
                req.overtaken += 1
                stay.append(req)
        self.waiting.extendleft(reversed(stay))
        while self._retracted and id(self._retracted[0]) in ids:
            self._retracted.popleft()

    # -- retraction ----------------------------------------------------------------------------------------------

    def _retract(self) -> None:
        """Send the running request with the least work behind it back to the queue, to be extended again later.

        No step may be in flight. One request is always left, and it fits by itself.
        """
        victim = min(reversed(self.running), key=lambda req: len(req.output_ids))
        assert len(self.running) > 1, "one request alone fits, or validation is wrong"
        assert victim.num_inflight == 0
        self._release(victim)
        victim.kv_len = 0
        victim.stage = ReqStage.WAITING
        if victim.prompt_logprobs is not None:
            victim.prompt_logprobs = []
        self._retracted.append(victim)
        self.num_retractions += 1
        self._ratio.retracted(self.running)

    def _release(self, req: Req) -> None:
        """Give back a running request's row and pages. Tokens that launched steps have written stay in the cache."""
        assert req.lease is not None
        self.memory.close(req.lease, req.token_ids()[: req.kv_len])
        req.lease = None
        self.running.remove(req)
