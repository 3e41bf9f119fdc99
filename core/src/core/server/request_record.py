"""What the server knows of one request for generation, from its arrival to its last byte."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from core.errors import CoreError, InvalidRequest, Overloaded
from core.managers.outputs import GenerationOutput
from core.server.metrics import Metrics, Outcome

logger = logging.getLogger("core.server.request")


@dataclass(slots=True)
class _Choice:
    last_at: float
    completion_tokens: int = 0
    finish_reason: str | None = None


class RequestRecord:
    """Measures one request, counts it once, and logs one line about it when it ends."""

    def __init__(self, request_id: str, route: str, metrics: Metrics, closed: Callable[[str], None]) -> None:
        self.request_id = request_id
        self.finished = False
        self.failure: CoreError | None = None
        self._route = route
        self._metrics = metrics
        self._closed = closed
        self._started = perf_counter()
        self._first_token_after: float | None = None
        self._prompts: dict[int, tuple[int, int]] = {}
        self._choices: dict[tuple[int, int], _Choice] = {}
        self._stopped = False
        self._stop_generation: Callable[[], None] | None = None
        metrics.open_requests.inc()

    def running(self, stop: Callable[[], None]) -> None:
        """From now on `stop` ends the generation; at once if an abort came before."""
        self._stop_generation = stop
        if self._stopped:
            stop()

    def abort(self) -> None:
        """Stop the generation as its client asked; the answer ends with `abort` as its finish reason."""
        self._stopped = True
        if self._stop_generation is not None:
            self._stop_generation()

    def interrupt(self, failure: CoreError) -> None:
        """Stop the generation for the server's own reason, which the client is told as an error."""
        self.failure = failure
        self.abort()

    def saw(self, prompt: int, output: GenerationOutput) -> None:
        """Take the news of one choice into account, before it is sent."""
        now = perf_counter()
        choice = self._choices.get((prompt, output.index))
        if choice is None:
            choice = self._choices[prompt, output.index] = _Choice(now)
            self._prompts.setdefault(prompt, (output.prompt_tokens, output.cached_tokens))
            if self._first_token_after is None and output.token_ids:
                self._first_token_after = now - self._started
                self._metrics.time_to_first_token.observe(self._first_token_after)
        elif output.token_ids:
            between = (now - choice.last_at) / len(output.token_ids)
            for _ in output.token_ids:
                self._metrics.inter_token_latency.observe(between)
        choice.last_at = now
        choice.completion_tokens = output.completion_tokens
        choice.finish_reason = output.finish_reason

    @property
    def seconds(self) -> float:
        """Since the request arrived."""
        return perf_counter() - self._started

    @property
    def prompt_tokens(self) -> int:
        """Of all prompts, each once."""
        return sum(tokens for tokens, _ in self._prompts.values())

    @property
    def cached_tokens(self) -> int:
        """Of all prompts, each once."""
        return sum(cached for _, cached in self._prompts.values())

    @property
    def completion_tokens(self) -> int:
        """Of all choices."""
        return sum(choice.completion_tokens for choice in self._choices.values())

    def answered(self) -> None:
        """Every choice has ended, and all but the last bytes of the answer are sent."""
        reasons = {choice.finish_reason for choice in self._choices.values()}
        outcome = next(
            (outcome for outcome in (Outcome.ABORT, Outcome.LENGTH) if outcome.value in reasons), Outcome.STOP
        )
        self._metrics.end_to_end_latency.observe(self.seconds)
        self._finish(outcome)

    def abandoned(self) -> None:
        """The client left."""
        self.abort()
        self._finish(Outcome.ABORT)

    def failed(self, error: BaseException) -> None:
        """The request was refused or broke off with `error`."""
        self.abort()
        if isinstance(error, InvalidRequest):
            outcome = Outcome.INVALID
        else:
            outcome = Outcome.REJECTED if isinstance(error, Overloaded) else Outcome.ERROR
        self._finish(outcome, f" error={str(error)!r}")

    def _finish(self, outcome: Outcome, note: str = "") -> None:
        if self.finished:
            return
        self.finished = True
        self._metrics.open_requests.dec()
        self._metrics.count(outcome)
        self._closed(self.request_id)
        first = "-" if self._first_token_after is None else f"{self._first_token_after:.3f}s"
        logger.info(
            "%s %s finish=%s prompt_tokens=%d cached_tokens=%d completion_tokens=%d first_token=%s total=%.3fs%s",
            self._route,
            self.request_id,
            outcome.value,
            self.prompt_tokens,
            self.cached_tokens,
            self.completion_tokens,
            first,
            self.seconds,
            note,
        )
