"""`EngineProcess`: an engine in a process of its own, for the server. Imports no torch.

Messages travel as msgpack over two ZeroMQ sockets in a private folder, one frame a step.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import final

import msgspec
import zmq
import zmq.asyncio

from core.errors import EngineDead
from core.managers.engine_child import BuildEngine, EngineAddresses, run_engine
from core.managers.engine_client import EngineClient
from core.managers.messages import EngineFailed, EngineReady, FromEngine, Shutdown, ToEngine

LONGEST_IPC_PATH = 80
"""Bytes of a socket's folder; the kernel allows 107 for the whole path."""
LAST_NEWS_MS = 200
"""Milliseconds to wait for what a process that has ended may still have sent."""
CLOSE_TIMEOUT = 10.0
"""Seconds that the step under way gets to end before the process is killed."""
KILL_TIMEOUT = 30.0
"""Seconds to wait, without blocking the event loop, for a killed process to be gone."""

logger = logging.getLogger(__name__)


@final
class EngineProcess(EngineClient):
    """Runs an engine in a spawned process, and notices at once if that ends.

    Args:
        build: makes the engine, in that process. Picklable, so a function of a module or a `functools.partial` of one.
        log_level: least level that the process logs, to stderr.
    """

    def __init__(self, build: BuildEngine, *, log_level: int = logging.INFO) -> None:
        self._build = build
        self._log_level = log_level
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(list[FromEngine])
        self._parts: _Parts | None = None
        self._ready: EngineReady | None = None
        self._death = ""

    def launch(self) -> None:
        if self._parts is None and not self._death:
            self._parts = _Parts(self._build, self._log_level)

    async def start(self) -> EngineReady:
        self.launch()
        if self._ready is None:
            (ready,) = await self.receive()
            assert isinstance(ready, EngineReady)
            self._ready = ready
        return self._ready

    @property
    def alive(self) -> bool:
        return self._ready is not None and not self._death and self._parts is not None and not self._parts.ended.done()

    @property
    def pid(self) -> int | None:
        """Of the engine process; None before `launch` and after `close`."""
        return None if self._parts is None else self._parts.process.pid

    def send(self, messages: Sequence[ToEngine]) -> None:
        if self._death or self._parts is None:
            raise EngineDead(self._death or "the engine was not started")
        self._parts.requests.send(self._encoder.encode(messages), zmq.NOBLOCK)

    async def receive(self) -> list[FromEngine]:
        parts = self._parts
        frame = None if self._death or parts is None else await parts.next_frame()
        if frame is None:
            if not self._death:
                self._death = "the engine was not started" if parts is None else parts.cause_of_death()
            raise EngineDead(self._death)
        news = self._decoder.decode(frame)
        if isinstance(news[-1], EngineFailed):
            self._death = news[-1].message
            raise EngineDead(self._death)
        return news

    async def close(self) -> None:
        self._death = self._death or "the engine was closed"
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.requests.send(self._encoder.encode([Shutdown()]), zmq.NOBLOCK)
            await parts.close(CLOSE_TIMEOUT if self._ready is not None else 0.0)


@final
class _Parts:
    """What exists only while the process does: the process, its folder, the sockets."""

    def __init__(self, build: BuildEngine, log_level: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._addresses = EngineAddresses(_private_folder())
        # The child inherits it, and torch reads it at its first allocation: weights in large pages stream about a tenth
        # faster on a CPU.
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
        self.process = multiprocessing.get_context("spawn").Process(
            target=run_engine, args=(build, self._addresses, log_level), name="engine"
        )
        try:
            with _signals_blocked():
                self.process.start()
        except BaseException:  # as when `build` cannot be pickled
            self._addresses.remove()
            raise
        # The exit of an interpreter that skipped `close` would otherwise wait for this process.
        atexit.register(self._abandon)
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self.process.sentinel, self._on_end)
        self._context = zmq.asyncio.Context()
        self._news = self._context.socket(zmq.PULL)
        self._news.set_hwm(0)
        self._news.bind(self._addresses.news)
        # Connected, not bound: messages then queue from the start, whether the engine listens yet or not.
        self.requests: zmq.Socket[bytes] = zmq.Context(self._context).socket(zmq.PUSH)
        self.requests.set_hwm(0)
        self.requests.connect(self._addresses.requests)

    def _on_end(self) -> None:
        self._loop.remove_reader(self.process.sentinel)
        if not self.ended.done():
            self.ended.set_result(None)

    def _abandon(self) -> None:
        self.process.kill()
        self._addresses.remove()

    async def next_frame(self) -> bytes | None:
        """The next frame, or None once the process has ended and all its frames have been taken."""
        frame: asyncio.Future[bytes] = asyncio.ensure_future(self._news.recv())
        try:
            if not frame.done():
                await asyncio.wait((frame, self.ended), return_when=asyncio.FIRST_COMPLETED)
            if not frame.done():
                await asyncio.wait((frame,), timeout=LAST_NEWS_MS / 1000)
            return frame.result() if frame.done() else None
        finally:
            frame.cancel()

    def cause_of_death(self) -> str:
        """How the process ended."""
        self.process.join(timeout=1)
        code = self.process.exitcode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = f"signal {signal.Signals(-code).name}, {how}"
        return f"the engine process ended unexpectedly ({how})"

    async def close(self, timeout: float) -> None:
        """Wait for the process to end, or kill it; leave nothing behind."""
        try:
            await asyncio.wait((self.ended,), timeout=timeout)
            if not self.ended.done():
                # It ignores SIGTERM, so that there is nothing between asking and SIGKILL.
                logger.log(logging.WARNING if timeout else logging.DEBUG, "killing the engine process")
                self.process.kill()
                await asyncio.wait((self.ended,), timeout=KILL_TIMEOUT)
        finally:
            self.process.kill()
            self.process.join()
            atexit.unregister(self._abandon)
            self._loop.remove_reader(self.process.sentinel)
            self.process.close()
            self._news.close(linger=0)
            self.requests.close(linger=0)
            self._context.term()
            self._addresses.remove()


def _private_folder() -> str:
    folder = tempfile.mkdtemp(prefix="core-")
    if len(folder) > LONGEST_IPC_PATH:
        EngineAddresses(folder).remove()
        folder = tempfile.mkdtemp(prefix="core-", dir="/tmp")
    return folder


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Start processes with SIGINT and SIGTERM blocked, so that neither hits them before they can ignore it.

    Signals for this process that come meanwhile are delivered afterwards.
    """
    # The first spawned process brings the resource tracker, whose start would unblock the signals too early.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
