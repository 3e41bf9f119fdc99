"""`Frontend`: what callers and the HTTP server talk to; text and tokens in, text and tokens out. Imports no torch."""

from __future__ import annotations

import asyncio
import logging
import secrets
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import msgspec

from core.errors import EngineDead, InvalidRequest, Overloaded
from core.managers.choice import Choice
from core.managers.engine_client import EngineClient
from core.managers.input_validation import Admission, admit
from core.managers.messages import (
    AbortRequests,
    AddRequest,
    CacheFlushed,
    EngineReady,
    EngineStats,
    FlushCache,
    FromEngine,
    RequestOutput,
    StepNews,
    ToEngine,
)
from core.managers.request_stream import GenerationStream
from core.managers.text_codec import TextCodec
from core.sampling.params import SamplingParams

if TYPE_CHECKING:
    from core.loading.model_info import ModelInfo

logger = logging.getLogger(__name__)

NUM_SEEDS = 2**63


@final
class Frontend:
    """Everything between callers and one engine. Used from one event loop only.

    Args:
        client: reaches the engine.
        info: of the model that it runs.
        tokenizer: None if the model has none; prompts are then token ids, and texts empty.
        max_queued_requests: most choices that may wait for their first token when a request comes in; None for no
            bound. A request that finds nobody waiting is always taken.
    """

    def __init__(
        self, client: EngineClient, info: ModelInfo, tokenizer: Any | None, *, max_queued_requests: int | None
    ) -> None:
        self.codec = TextCodec(tokenizer)
        """Text to token ids and back."""
        self.stats = EngineStats()
        """The latest gauges and counters."""
        self._client = client
        self._eos_token_ids = tuple(info.eos_token_ids)
        self._max_queued = max_queued_requests
        self._ready: EngineReady | None = None
        self._receiving: asyncio.Task[None] | None = None
        self._died: asyncio.Future[str] | None = None
        self._streams: dict[str, GenerationStream] = {}
        self._choices: dict[str, tuple[GenerationStream, Choice]] = {}
        self._num_requests = 0
        self._num_waiting = 0
        self._flushes: dict[int, asyncio.Future[int]] = {}
        self._num_flushes = 0

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> EngineReady:
        """Wait until the engine is ready, and listen to it. Raises what `EngineClient.start` raises."""
        self._ready = await self._client.start()
        self._died = asyncio.get_running_loop().create_future()
        self._receiving = asyncio.create_task(self._receive(self._died))
        return self._ready

    @property
    def ready(self) -> EngineReady:
        """What the engine said when it had loaded."""
        if self._ready is None:
            raise EngineDead("The engine was not started")
        return self._ready

    @property
    def alive(self) -> bool:
        """Whether requests can be submitted."""
        return self._died is not None and not self._died.done() and self._client.alive

    async def died(self) -> str:
        """Wait until the engine has stopped, by itself or by `close`; returns the reason."""
        assert self._died is not None, "start() comes first"
        return await asyncio.shield(self._died)

    async def close(self) -> None:
        """End the engine; open streams raise `EngineDead`. Harmless when repeated."""
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)
        self._end("the engine was closed")
        await self._client.close()
        self.codec.close()

    # -- requests ------------------------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> Any | None:
        """The model's tokenizer, as transformers makes it; None if it has none."""
        return self.codec.tokenizer

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text. Raises `InvalidRequest` if the model has no tokenizer."""
        return self.codec.encode(text, add_special_tokens)

    async def encode_async(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """`encode` that never holds the event loop up: long texts are encoded in a thread."""
        return await self.codec.encode_async(text, add_special_tokens)

    def check(
        self, prompt: str | Sequence[int], params: SamplingParams, *, add_special_tokens: bool = True
    ) -> Admission:
        """Whether a request can be served at all. Queues nothing. Raises `InvalidRequest`."""
        ids = self.encode(prompt, add_special_tokens) if isinstance(prompt, str) else prompt
        return admit(ids, params, self.ready, has_tokenizer=self.tokenizer is not None)

    def submit(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        extra_key: str = "",
        add_special_tokens: bool = True,
    ) -> GenerationStream:
        """Check and queue a request.

        Raises `EngineDead`, `Overloaded` or `InvalidRequest`; nothing is queued then.
        """
        self._require_room()
        admission = self.check(prompt, params, add_special_tokens=add_special_tokens)
        return self.enqueue(admission, request_id=request_id, extra_key=extra_key)

    def enqueue(self, admission: Admission, *, request_id: str | None = None, extra_key: str = "") -> GenerationStream:
        """Queue a request that `check` has let pass.

        Raises `EngineDead`, `Overloaded`, or `InvalidRequest` if the id is in use; nothing is queued then.
        """
        self._require_room()
        request_id = request_id or uuid.uuid4().hex
        if request_id in self._streams:
            raise InvalidRequest(f"The request id {request_id!r} is in use; choose another", param="request_id")
        requests = self._requests(admission, request_id, extra_key)
        self._client.send(requests)
        choices = [Choice(i, request, admission.params, self.tokenizer) for i, request in enumerate(requests)]
        stream = GenerationStream(request_id, choices, self._abort)
        self._streams[request_id] = stream
        self._choices.update((choice.request_id, (stream, choice)) for choice in choices)
        self._num_waiting += len(choices)
        return stream

    def _require_room(self) -> None:
        if not self.alive:
            reason = self._died.result() if self._died is not None and self._died.done() else "it is not running"
            raise EngineDead(f"The engine takes no requests: {reason}")
        if self._max_queued is not None and self._num_waiting >= max(1, self._max_queued):
            raise Overloaded(f"{self._num_waiting} requests wait already, and {self._max_queued} may; try again later")

    def _requests(self, admission: Admission, request_id: str, extra_key: str) -> list[AddRequest]:
        """One for each choice, with a seed of its own. Stop strings stay here: the engine knows no text.

        The engine's ids are never used again, whatever callers choose: news of an aborted request may be under way.
        """
        self._num_requests += 1
        params = admission.params
        seed = secrets.randbelow(NUM_SEEDS) if params.seed is None else params.seed
        return [
            AddRequest(
                f"{self._num_requests}:{request_id}-{i}",
                admission.prompt_ids,
                msgspec.structs.replace(params, n=1, stop=(), seed=(seed + i) % NUM_SEEDS),
                self._eos_token_ids,
                extra_key,
            )
            for i in range(params.n)
        ]

    async def flush_cache(self) -> int:
        """Empty the prefix cache; returns how many pages became free. Raises `EngineDead`."""
        self._num_flushes += 1
        call_id = self._num_flushes
        self._client.send([FlushCache(call_id)])
        flushed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._flushes[call_id] = flushed
        try:
            return await flushed
        finally:
            self._flushes.pop(call_id, None)

    # -- news ----------------------------------------------------------------------------------------------------

    async def _receive(self, died: asyncio.Future[str]) -> None:
        try:
            while True:
                self._take(await self._client.receive())
                await asyncio.sleep(0)  # `receive` need not have waited: let readers run
        except EngineDead as error:
            self._end(str(error))
        except Exception as error:
            logger.exception("the front end failed")
            self._end(f"the front end failed with {type(error).__name__}: {error}")

    def _take(self, messages: Sequence[FromEngine]) -> None:
        stopped: list[str] = []
        for message in messages:
            match message:
                case StepNews():
                    self.stats = message.stats
                    stopped += [output.request_id for output in message.outputs if self._take_output(output)]
                case CacheFlushed():
                    flushed = self._flushes.get(message.call_id)
                    if flushed is not None and not flushed.done():
                        flushed.set_result(message.num_pages)
                case _:
                    raise AssertionError(f"unexpected message {message!r}")
        if stopped:
            self._tell([AbortRequests(stopped)])

    def _take_output(self, output: RequestOutput) -> bool:
        """Hand one request's news to its choice. True if the engine is still to be told that it has ended."""
        entry = self._choices.get(output.request_id)
        if entry is None:
            return False  # aborted, with news under way
        stream, choice = entry
        self._num_waiting -= choice.waiting
        try:
            ended_here = choice.receive(output)
        except Exception:
            # One request whose tokens make no text must not end the others.
            logger.exception("request %s: news could not be taken in: %r", stream.request_id, output)
            choice.give_up("the server could not make text of a token")
            ended_here = output.finish_reason is None
        self._notify(stream, choice)
        return ended_here

    def _abort(self, stream: GenerationStream) -> None:
        running = [choice for choice in stream.choices if choice.finish_reason is None]
        for choice in running:
            self._num_waiting -= choice.waiting
            choice.abort()
            self._notify(stream, choice)
        self._tell([AbortRequests([choice.request_id for choice in running])])

    def _notify(self, stream: GenerationStream, choice: Choice) -> None:
        stream.notify(choice)
        if choice.finish_reason is not None:
            del self._choices[choice.request_id]
            if stream.ended:
                del self._streams[stream.request_id]

    def _tell(self, messages: Sequence[ToEngine]) -> None:
        """Send what is of no use to an engine that has just died."""
        if self.alive:
            self._client.send(messages)

    def _end(self, reason: str) -> None:
        """Nothing more will come: tell everybody who waits."""
        if self._died is not None and not self._died.done():
            self._died.set_result(reason)
        failure = EngineDead(reason)
        for stream in self._streams.values():
            stream.fail(failure)
        for flushed in self._flushes.values():
            if not flushed.done():
                flushed.set_exception(failure)
        self._streams.clear()
        self._choices.clear()
        self._num_waiting = 0
