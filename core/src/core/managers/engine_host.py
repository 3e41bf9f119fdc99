"""`EngineHost`: an engine thread, and a thread with the event loop of its front end. Imports no torch by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from core.errors import InvalidRequest
from core.managers.engine_thread import EngineThread
from core.managers.frontend import Frontend
from core.managers.input_validation import Admission
from core.managers.loop_thread import LoopThread
from core.managers.outputs import Completion, GenerationOutput
from core.managers.progress import Progress
from core.managers.request_stream import GenerationStream
from core.sampling.params import SamplingParams

if TYPE_CHECKING:
    from core.loading.model_info import ModelInfo
    from core.managers.engine_core import EngineCore

Prompt = str | Sequence[int]
"""A text, or token ids."""


@final
class EngineHost:
    """Owns the threads behind a `core.Engine`, and does its work in their event loop.

    `loop` may be used from any thread; the coroutine methods run in it.

    Args:
        build: makes the engine, in the engine's thread.
        info: of the model.
        load_tokenizer: called while the engine is built; None if the model has none.
    """

    def __init__(
        self, build: Callable[[], EngineCore], info: ModelInfo, load_tokenizer: Callable[[], Any | None]
    ) -> None:
        self.info = info
        self.loop = LoopThread()
        self._client = EngineThread(build)
        try:
            self.frontend = self.loop.run(self._open(load_tokenizer))
        except BaseException:
            self.loop.run(self._client.close())
            self.loop.close()
            raise

    async def _open(self, load_tokenizer: Callable[[], Any | None]) -> Frontend:
        self._client.launch()
        frontend = Frontend(self._client, self.info, await asyncio.to_thread(load_tokenizer), max_queued_requests=None)
        await frontend.start()
        return frontend

    def close(self) -> None:
        """End both threads. Whoever waits for a result gets `EngineDead`. Harmless when repeated."""
        if not self.loop.closed:
            self.loop.run(self.frontend.close())
            self.loop.close()

    def close_from_anywhere(self) -> None:
        """`close` for the garbage collector, which may run in one of the threads that are to end."""
        if threading.current_thread() in (self.loop.thread, self._client.thread):
            threading.Thread(target=self.close, name="engine shutdown").start()
        else:
            self.close()

    async def generate(
        self,
        prompts: Sequence[Prompt],
        params: Sequence[SamplingParams],
        add_special_tokens: bool,
        progress: bool | None,
    ) -> list[Completion]:
        """Every choice of every prompt. Checks all before it queues any; aborts what is open if it is interrupted."""
        ids = await self._encoded(prompts, add_special_tokens)
        admissions = [self._checked(i, prompt, each) for i, (prompt, each) in enumerate(zip(ids, params, strict=True))]
        streams: list[GenerationStream] = []
        with Progress(sum(each.n for each in params), progress) as bar:
            try:
                streams += [self.frontend.enqueue(admission) for admission in admissions]
                done = await asyncio.gather(*(_finish(stream, bar) for stream in streams))
            finally:
                for stream in streams:
                    stream.abort()
        return [completion for completions in done for completion in completions]

    async def stream(self, prompt: Prompt, params: SamplingParams) -> GenerationStream:
        """Queue one request."""
        ids = await self.frontend.encode_async(prompt) if isinstance(prompt, str) else prompt
        return self.frontend.submit(ids, params)

    async def _encoded(self, prompts: Sequence[Prompt], add_special_tokens: bool) -> list[Sequence[int]]:
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        encoded = iter(await self.frontend.codec.encode_many(texts, add_special_tokens) if texts else [])
        return [next(encoded) if isinstance(prompt, str) else prompt for prompt in prompts]

    def _checked(self, number: int, ids: Sequence[int], params: SamplingParams) -> Admission:
        try:
            return self.frontend.check(ids, params)
        except InvalidRequest as error:
            raise InvalidRequest(f"Prompt {number}: {error}", param=error.param) from None


async def _finish(stream: GenerationStream, bar: Progress) -> list[Completion]:
    completions = await stream.completions()
    for completion in completions:
        bar.finished(len(completion.token_ids))
    return completions


async def next_output(stream: GenerationStream) -> GenerationOutput | None:
    """The next news of a stream, None at its end: an exception of iteration does not pass between threads."""
    return await anext(stream, None)
