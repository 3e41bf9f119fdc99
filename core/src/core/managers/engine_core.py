"""`EngineCore`: the loop's body. Takes messages, schedules, launches, reads, reports. Imports no torch.

With overlap, step n+1 is launched before the tokens of step n are read:

    schedule n+1 on known lengths -> launch n+1 -> wait for n -> process n

A request that turns out to have finished in step n costs one discarded token of step n+1, never a wrong one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from core.config import SchedulerConfig
from core.managers.messages import (
    AbortRequests,
    AddRequest,
    CacheFlushed,
    EngineReady,
    EngineStats,
    FlushCache,
    FromEngine,
    Logprob,
    RequestOutput,
    Shutdown,
    StepNews,
    ToEngine,
)
from core.managers.request import Req, ReqStage
from core.managers.schedule_batch import ScheduleBatch
from core.managers.scheduler import Scheduler
from core.mem_cache.kv_memory import KVMemory
from core.model_executor.worker import StepHandle, Worker
from core.model_executor.worker_batch import StepOutput, TokenLogprobs


@final
class EngineCore:
    """One engine. Single-threaded: every method is called from the thread that drives it."""

    def __init__(
        self, worker: Worker, config: SchedulerConfig, *, share_prefixes: bool = True, load_seconds: float = 0.0
    ) -> None:
        limits = worker.limits
        (num_pages,) = limits.num_pages
        self._worker = worker
        self.memory = KVMemory(
            num_pages=num_pages,
            page_size=limits.page_size,
            max_rows=limits.max_rows,
            max_context_len=limits.max_context_len,
            share_prefixes=share_prefixes,
        )
        self.scheduler = Scheduler(config, self.memory)
        disabled = config.disable_overlap_schedule
        self._overlap = limits.launches_async if disabled is None else not disabled
        self._inflight: tuple[ScheduleBatch, StepHandle] | None = None
        self._refused: list[RequestOutput] = []
        self._output_tokens = 0
        self._num_steps = 0
        self.ready = EngineReady(
            max_total_tokens=min(self.memory.max_total_tokens, limits.max_context_len),
            max_context_len=limits.max_context_len,
            vocab_size=limits.vocab_size,
            num_pages=num_pages,
            page_size=limits.page_size,
            load_seconds=load_seconds,
        )

    def handle(self, messages: Sequence[ToEngine]) -> list[FromEngine]:
        """Take messages in; the answers that are due at once. `Shutdown` is the caller's business."""
        answers: list[FromEngine] = []
        for message in messages:
            match message:
                case AddRequest():
                    self._add(message)
                case AbortRequests():
                    for request_id in message.request_ids:
                        self.scheduler.abort(request_id)
                case FlushCache():
                    answers.append(CacheFlushed(message.call_id, self.memory.flush()))
                case Shutdown():
                    pass
        return answers

    def _add(self, request: AddRequest) -> None:
        """Queue a request, or refuse what could never run: the front end checks the same, but nobody may hang."""
        total = len(request.prompt_ids) + (request.params.max_tokens or 0)
        if not request.prompt_ids or total > self.ready.max_total_tokens:
            error = f"{total} tokens were asked for, between 1 and {self.ready.max_total_tokens} fit"
        elif request.request_id in self.scheduler.live:
            error = f"request id {request.request_id!r} is in use"
        else:
            self.scheduler.add(Req(request))
            return
        self._refused.append(RequestOutput(request.request_id, [], finish_reason="abort", error=error))

    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        return bool(self.scheduler.live or self._inflight or self._refused)

    def step(self) -> StepNews:
        """Run one step: launch the next batch, and process the one that is due."""
        outputs, self._refused = self._refused, []
        if self._inflight is not None and self.scheduler.must_read_first():
            self._read(outputs)
        batch = self.scheduler.schedule()
        previous, self._inflight = self._inflight, None
        if batch is not None:
            handle = self._worker.launch(batch.to_worker_batch((self.memory.take_updates(),)))
            self._num_steps += 1
            self._inflight = (batch, handle)
        if previous is not None:
            self._process(*previous, outputs)
        elif not self._overlap:
            self._read(outputs)
        if not self.scheduler.live and self._inflight is None:
            self.memory.check()
        return StepNews(outputs, self.stats())

    def _read(self, outputs: list[RequestOutput]) -> None:
        if self._inflight is not None:
            inflight, self._inflight = self._inflight, None
            self._process(*inflight, outputs)

    def _process(self, batch: ScheduleBatch, handle: StepHandle, outputs: list[RequestOutput]) -> None:
        """Wait for a step and tell its requests: the only place where the host waits for the device."""
        result = handle.wait()
        tokens = iter(result.token_ids)
        for index, extend in enumerate(batch.extends):
            req = extend.req
            if req.prompt_logprobs is not None and index in result.prompt_logprobs:
                req.prompt_logprobs += [_logprob(entry) for entry in result.prompt_logprobs[index]]
            if extend.samples:
                self._drawn(req, next(tokens), result, index, outputs)
            elif extend.is_last and req.stage is not ReqStage.FINISHED:
                outputs.append(self._news(req, [], "length", None, None))
                self.scheduler.finish(req)
        for index, req in enumerate(batch.decodes, len(batch.extends)):
            self._drawn(req, next(tokens), result, index, outputs)

    def _drawn(self, req: Req, token: int, result: StepOutput, index: int, outputs: list[RequestOutput]) -> None:
        """Take in one drawn token, unless its request has finished since the step was launched."""
        req.num_inflight -= 1
        if req.stage is ReqStage.FINISHED:
            return
        self._output_tokens += 1
        req.output_ids.append(token)
        num_drawn = len(req.output_ids)
        reason: str | None = None
        if token in req.finish_ids and num_drawn > req.request.params.min_tokens:
            reason = "stop"
        elif num_drawn >= req.max_tokens:
            reason = "length"
        entry = result.logprobs.get(index)
        outputs.append(self._news(req, [token], reason, token if reason == "stop" else None, entry))
        if reason is not None:
            self.scheduler.finish(req)

    @staticmethod
    def _news(
        req: Req, tokens: list[int], reason: str | None, stop_token_id: int | None, entry: TokenLogprobs | None
    ) -> RequestOutput:
        news = RequestOutput(req.request_id, tokens, reason, stop_token_id)
        if entry is not None:
            news.logprobs = [_logprob(entry)]
        if not req.reported:
            req.reported = True
            news.cached_tokens = req.cached_tokens
            news.prompt_logprobs, req.prompt_logprobs = req.prompt_logprobs, None
        return news

    def stats(self) -> EngineStats:
        """Gauges and counters as they stand."""
        scheduler, memory = self.scheduler, self.memory
        return EngineStats(
            num_running=len(scheduler.running),
            num_waiting=scheduler.num_waiting,
            num_pages=memory.num_pages - 1,
            num_free_pages=memory.allocator.num_free,
            num_cached_pages=memory.cache.cached_pages,
            num_held_pages=memory.num_held_pages,
            prompt_tokens=scheduler.prompt_tokens,
            cached_tokens=scheduler.cached_tokens,
            output_tokens=self._output_tokens,
            num_retractions=scheduler.num_retractions,
            num_steps=self._num_steps,
        )


def _logprob(entry: TokenLogprobs) -> Logprob:
    return Logprob(entry.token_id, entry.logprob, list(zip(entry.top_ids, entry.top_logprobs, strict=True)))
