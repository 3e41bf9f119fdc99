"""`LoopThread`: an event loop in a thread, for callers that have none. Imports no torch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar, final

from core.errors import EngineDead

T = TypeVar("T")


@final
class LoopThread:
    """Runs coroutines in a daemon thread. Every method may be called from any other thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="engine front end", daemon=True)
        self._closing = threading.Lock()
        self._closed = False
        self.thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine's result. It is cancelled if the wait is interrupted, as by Ctrl-C."""
        future = self._submit(coroutine)
        try:
            return future.result()
        finally:
            future.cancel()

    async def run_from(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The same for a caller that has an event loop of its own. It is cancelled with its caller."""
        return await asyncio.wrap_future(self._submit(coroutine))

    def call(self, function: Callable[[], object]) -> None:
        """Call a function there, sometime soon; never if the thread has ended."""
        if not self._closed:
            self._loop.call_soon_threadsafe(function)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        if self._closed:
            coroutine.close()
            raise EngineDead("the engine was shut down")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Cancel what still runs, and end the thread. Harmless when repeated."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
                self.thread.join()

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
