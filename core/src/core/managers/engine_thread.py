"""`EngineThread`: an engine in a thread of this process, for `core.Engine`. Imports no torch."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import final

from core.errors import EngineDead
from core.managers.engine_client import EngineClient
from core.managers.engine_core import EngineCore
from core.managers.engine_loop import describe_failure, run_loop
from core.managers.messages import EngineFailed, EngineReady, FromEngine, Shutdown, ToEngine

logger = logging.getLogger(__name__)

POLL = 0.005
"""Seconds between two looks at whether the thread has ended."""
CLOSE_TIMEOUT = 30.0
"""Seconds that the step under way gets to end. A thread cannot be killed; after that it is left behind."""
CLOSE_TIMEOUT_LOADING = 1.0
"""The same while the engine is being built, which nothing can interrupt."""


@final
class EngineThread(EngineClient):
    """Runs an engine in a daemon thread.

    Args:
        build: makes the engine; called in that thread, which alone touches it.
    """

    def __init__(self, build: Callable[[], EngineCore]) -> None:
        self._build = build
        self.thread: threading.Thread | None = None
        """While it may run."""
        self._inbox: queue.SimpleQueue[Sequence[ToEngine]] = queue.SimpleQueue()
        self._outbox: asyncio.Queue[list[FromEngine]] = asyncio.Queue()
        self._ready: EngineReady | None = None
        self._death = ""
        self._build_error: BaseException | None = None

    def launch(self) -> None:
        if self.thread is None and not self._death:
            run = threading.Thread(target=self._run, args=(asyncio.get_running_loop(),), name="engine", daemon=True)
            self.thread = run
            run.start()

    async def start(self) -> EngineReady:
        self.launch()
        if self._ready is None:
            news = await self._next()
            error, self._build_error = self._build_error, None
            if isinstance(error, Exception):
                raise error
            if error is not None:  # SystemExit, which would take the event loop along
                raise EngineDead(self._death) from error
            if not news:
                raise EngineDead(self._death)
            (ready,) = news
            assert isinstance(ready, EngineReady)
            self._ready = ready
        return self._ready

    @property
    def alive(self) -> bool:
        return self._ready is not None and not self._death

    def send(self, messages: Sequence[ToEngine]) -> None:
        if self._death:
            raise EngineDead(self._death)
        self._inbox.put(messages)

    async def receive(self) -> list[FromEngine]:
        news = await self._next()
        while not self._death and not self._outbox.empty():
            news = news + await self._next()
        if not news:
            raise EngineDead(self._death)
        return news

    async def close(self) -> None:
        self._death = self._death or "the engine was closed"
        thread = self.thread
        if thread is not None:
            timeout = CLOSE_TIMEOUT_LOADING if self._ready is None else CLOSE_TIMEOUT
            self._inbox.put([Shutdown()])
            end = time.monotonic() + timeout
            while thread.is_alive() and time.monotonic() < end:  # no executor: it may be the interpreter's exit
                await asyncio.sleep(POLL)
            if thread.is_alive():
                logger.warning("the engine's thread did not end within %g s and is left behind", timeout)
        self._outbox.put_nowait([])

    async def _next(self) -> list[FromEngine]:
        """The next list of news; empty, again and again, once the engine is gone."""
        if self._death and self._outbox.empty():
            return []
        news = await self._outbox.get()
        if news and isinstance(last := news[-1], EngineFailed):
            news.pop()
            self._death = last.message
        return news

    # -- in the engine's thread ----------------------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        def send(news: list[FromEngine]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._outbox.put_nowait, news)

        core: EngineCore | None = None
        try:
            core = self._build()
            run_loop(core, self._receive, send)
        except BaseException as error:  # reported to whoever waits for the engine
            if core is None:
                self._build_error = error
            else:
                logger.exception("the engine failed")
            send([EngineFailed(describe_failure(error))])

    def _receive(self, wait: bool) -> list[ToEngine]:
        messages: list[ToEngine] = []
        while True:
            try:
                messages += self._inbox.get(block=wait and not messages)
            except queue.Empty:
                return messages
