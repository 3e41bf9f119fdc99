"""One request's prompts, submitted together and read as one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from core.errors import InvalidRequest
from core.managers.outputs import GenerationOutput
from core.sampling.params import SamplingParams
from core.server.front_end import FrontEnd, GenerationStream
from core.server.schema.completions import Prompt

News = tuple[int, GenerationOutput]
"""Index of the prompt, and news of one of its choices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the engine is asked for.

    Attributes:
        prompts: token ids, at least one prompt of at least one token.
        params: the same for every prompt.
        extra_key: prefixes are shared only between equal keys.
    """

    prompts: Sequence[list[int]]
    params: SamplingParams
    extra_key: str = ""


class Generation:
    """The streams of a request's prompts, merged.

    Every choice of every prompt ends with exactly one news that has a finish reason: if a stream ends without (it was
    aborted), `abort` is supplied.
    """

    def __init__(self, streams: Sequence[GenerationStream], work: Work) -> None:
        self._streams = streams
        self._running = {(prompt, index) for prompt in range(len(streams)) for index in range(work.params.n)}

    def stop(self) -> None:
        """Abort what still runs."""
        if self._running:
            for stream in self._streams:
                stream.abort()

    async def news(self) -> AsyncGenerator[News, None]:
        """What comes from any prompt's stream, in its order. Call once, and close what it returns."""
        async with aclosing(_merged(self._streams)) as merged:
            async for prompt, output in merged:
                if output.finish_reason is not None:
                    self._running.discard((prompt, output.index))
                yield prompt, output
        for prompt, index in sorted(self._running):
            self._running.discard((prompt, index))
            yield prompt, GenerationOutput(index=index, text="", token_ids=[], finish_reason="abort")


async def encode(engine: FrontEnd, prompts: Sequence[Prompt], *, add_special_tokens: bool) -> list[list[int]]:
    """Token ids of each prompt, which are the prompt itself if it came as such. Lets others run in between.

    Raises `InvalidRequest` if one has none.
    """
    encoded: list[list[int]] = []
    for prompt in prompts:
        if encoded:
            await asyncio.sleep(0)
        encoded.append(await engine.encode_async(prompt, add_special_tokens) if isinstance(prompt, str) else prompt)
        if not encoded[-1]:
            raise InvalidRequest("The prompt is empty: it has no token", param="prompt")
    return encoded


def submit(engine: FrontEnd, work: Work, request_id: str) -> Generation:
    """Queue all prompts, or none.

    Raises:
        InvalidRequest, Overloaded, EngineDead: nothing of this request is queued then.
    """
    admissions = [engine.check(ids, work.params) for ids in work.prompts]
    streams: list[GenerationStream] = []
    try:
        for number, admission in enumerate(admissions):
            each_id = request_id if len(admissions) == 1 else f"{request_id}-{number}"
            streams.append(engine.enqueue(admission, request_id=each_id, extra_key=work.extra_key))
    except BaseException:
        for stream in streams:
            stream.abort()
        raise
    return Generation(streams, work)


async def _merged(streams: Sequence[GenerationStream]) -> AsyncGenerator[News, None]:
    if len(streams) == 1:
        async for output in streams[0]:
            yield 0, output
        return
    arrived: asyncio.Queue[News | None] = asyncio.Queue()
    tasks = [asyncio.create_task(_pump(prompt, stream, arrived)) for prompt, stream in enumerate(streams)]
    try:
        for _ in tasks:
            while (news := await arrived.get()) is not None:
                yield news
            for task in tasks:
                if task.done():
                    task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(prompt: int, stream: GenerationStream, arrived: asyncio.Queue[News | None]) -> None:
    """Put a stream's news into `arrived`, and None at its end, however it ends."""
    try:
        async for output in stream:
            arrived.put_nowait((prompt, output))
    finally:
        arrived.put_nowait(None)
