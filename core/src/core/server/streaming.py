"""Server-sent events, and watching whether the client is still there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.errors import CoreError
from core.managers.outputs import GenerationOutput
from core.server.errors import GenerationFailed, error_body
from core.server.generation import Generation
from core.server.reply import Reply
from core.server.request_record import RequestRecord

logger = logging.getLogger("core.server")

HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
DONE = b"[DONE]"

T = TypeVar("T")


def sse(payload: bytes) -> bytes:
    """One event. JSON as written here holds no line break."""
    return b"data: " + payload + b"\n\n"


def check(record: RequestRecord, output: GenerationOutput) -> None:
    """Raise what ended the request early, if anything but its client did: the server's own reason first."""
    if record.failure is not None:
        raise record.failure
    if output.error is not None:
        raise GenerationFailed(output.error)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T], record: RequestRecord) -> T | None:
    """Run `work` until it ends or the client leaves; then cancel it and return None.

    The request's body must have been read. Once `record` is finished only the last bytes are left to be sent, and a
    disconnect, which servers also report after a complete answer, means nothing any more.
    """
    running = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((running, watching), return_when=asyncio.FIRST_COMPLETED)
        if not running.done() and not record.finished:
            record.abandoned()
            return None
        return await running
    finally:
        for task in (running, watching):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Streams a generation as server-sent events. An error after the first byte becomes an error event."""

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, reply: Reply, record: RequestRecord) -> None:
        super().__init__(headers={**HEADERS, "x-request-id": record.request_id})
        del self.headers["content-length"]
        self._generation = generation
        self._reply = reply
        self._record = record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(receive, self._stream(send), self._record)
        finally:
            if not self._record.finished:  # cancelled from outside: the server ends at once
                self._record.abandoned()

    async def _stream(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            await self._events(send)
        except CoreError as error:
            await self._fail(send, error)
        except Exception as error:
            logger.exception("%s: unexpected error in a stream", self._record.request_id)
            await self._fail(send, error)
        await send({"type": "http.response.body", "body": sse(DONE), "more_body": False})

    async def _events(self, send: Send) -> None:
        record, reply = self._record, self._reply
        for payload in reply.opening():
            await send({"type": "http.response.body", "body": sse(payload), "more_body": True})
        async with aclosing(self._generation.news()) as news:
            async for prompt, output in news:
                check(record, output)
                record.saw(prompt, output)
                event = reply.event(prompt, output)
                if event is not None:
                    await send({"type": "http.response.body", "body": sse(event), "more_body": True})
        record.answered()
        for payload in reply.closing(record):
            await send({"type": "http.response.body", "body": sse(payload), "more_body": True})

    async def _fail(self, send: Send, error: Exception) -> None:
        self._record.failed(error)
        await send({"type": "http.response.body", "body": sse(error_body(error)), "more_body": True})
