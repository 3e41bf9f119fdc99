"""`GenerationStream`: the news of one request, all its choices, as its caller reads them. Imports no torch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import final

from core.errors import EngineDead, RequestError
from core.managers.choice import Choice
from core.managers.outputs import Completion, GenerationOutput


@final
class GenerationStream:
    """An async iterator of `GenerationOutput`, for one reader in the front end's event loop.

    News of each choice come in order, those of several choices as they arrive; what came since the last read is
    merged. Ends after every choice's last news, which alone has a finish reason. Raises `EngineDead` if the engine
    stops before.

    Args:
        request_id: of the request.
        choices: in the order of their indices.
        abort: tells the engine to drop the choices that have not ended.
    """

    def __init__(self, request_id: str, choices: Sequence[Choice], abort: Callable[[GenerationStream], None]) -> None:
        self.request_id = request_id
        self.choices = tuple(choices)
        self._abort = abort
        self._unread: dict[int, Choice] = {}
        self._num_running = len(self.choices)
        self._failure: EngineDead | None = None
        self._news = asyncio.Event()
        self._end = asyncio.Event()

    # -- the reader's side ---------------------------------------------------------------------------------------

    def __aiter__(self) -> GenerationStream:
        return self

    async def __anext__(self) -> GenerationOutput:
        """The next news. If cancelled while it waits, the request is aborted: its reader has left."""
        while True:
            if self._unread:
                index = next(iter(self._unread))
                output = self._unread.pop(index).take()
                assert output is not None
                return output
            self._raise_failure()
            if self._num_running == 0:
                raise StopAsyncIteration
            self._news.clear()
            await self._or_abort(self._news)

    async def completions(self) -> list[Completion]:
        """Wait for the end, and return each choice whole. Instead of iterating, and cheaper.

        Cancelling aborts. Raises `EngineDead`, or `RequestError` if the engine gave the request up.
        """
        if self._num_running:
            await self._or_abort(self._end)
        self._raise_failure()
        return [_completion(choice.take()) for choice in self.choices]

    def abort(self) -> None:
        """Stop every choice that still runs; its last news has the finish reason `abort`. Harmless when repeated."""
        if self._num_running and self._failure is None:
            self._abort(self)

    async def aclose(self) -> None:
        """Abort, and drop what is unread."""
        self.abort()
        self._unread.clear()

    async def _or_abort(self, event: asyncio.Event) -> None:
        try:
            await event.wait()
        except asyncio.CancelledError:
            self.abort()
            raise

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise EngineDead(str(self._failure))

    # -- the front end's side ------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether every choice has had its last news; they may be unread."""
        return self._num_running == 0

    def notify(self, choice: Choice) -> None:
        """A choice has taken news in."""
        self._unread[choice.index] = choice
        self._news.set()
        if choice.finish_reason is not None:
            self._num_running -= 1
            if self._num_running == 0:
                self._end.set()

    def fail(self, failure: EngineDead) -> None:
        """No more news will come for the choices that still run."""
        if self._num_running:
            self._failure = failure
            self._news.set()
            self._end.set()


def _completion(output: GenerationOutput | None) -> Completion:
    assert output is not None, "completions() was called after iterating"
    if output.error is not None:
        raise RequestError(f"The engine gave the request up: {output.error}")
    return Completion(
        index=output.index,
        text=output.text,
        token_ids=output.token_ids,
        logprobs=output.logprobs,
        prompt_logprobs=output.prompt_logprobs,
        finish_reason=output.finish_reason,
        stop_reason=output.stop_reason,
        prompt_tokens=output.prompt_tokens,
        cached_tokens=output.cached_tokens,
    )
