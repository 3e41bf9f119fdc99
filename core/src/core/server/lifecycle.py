"""From a bound socket to the exit code: loading, serving, draining, and the engine's death."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from core.errors import ConfigError, CoreError, PluginError
from core.server.errors import NotReady
from core.server.http_server import HttpServer
from core.server.service import Service, Serving

logger = logging.getLogger("core.server")

OK = 0
FAILED = 1
MISCONFIGURED = 2
"""A setting or a plugin does not fit: trying again is of no use."""
SIGNALLED = 128
"""Added to the signal's number, as shells do."""

_LAST_EVENTS_TIMEOUT = 2.0
_POLL = 0.02
_SAME_WISH = 0.1


class LoadedEngine(Protocol):
    """A running engine, owned by the server."""

    @property
    def serving(self) -> Serving:
        """What routes need of it."""
        ...

    async def died(self) -> str:
        """Return when the engine has stopped by itself, with the reason."""
        ...

    async def close(self) -> None:
        """Stop the engine and wait for its end."""
        ...


Load = Callable[[], Awaitable[LoadedEngine]]
"""Loads the engine. If it is cancelled it leaves no process behind."""


class StopSignals:
    """SIGTERM and SIGINT: the first asks for a drain, the second ends the process at once.

    One that comes right behind the first is the same wish: `timeout` signals its child and then the whole group.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._asked_at = 0.0
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received, number)

    def _received(self, number: signal.Signals) -> None:
        if not self.asked.is_set():
            logger.info("%s: no new requests from now on", number.name)
            self._asked_at = time.monotonic()
            self.asked.set()
        elif time.monotonic() - self._asked_at > _SAME_WISH:
            # The engine process sees its parent go, and goes too.
            logger.warning("%s again: ending at once", number.name)
            logging.shutdown()
            os._exit(SIGNALLED + number)


async def live(
    http: HttpServer, service: Service, load: Load, announce: Callable[[Serving], None], drain: float
) -> int:
    """Run the server to its end and return the exit code.

    Args:
        http: answers for `service` from the first moment, also while `load` runs.
        announce: called once, when requests are taken.
        drain: seconds that open requests get after the first signal.
    """
    stop = StopSignals()
    asked = asyncio.create_task(stop.asked.wait())
    answering = asyncio.create_task(http.serve())
    loading = asyncio.ensure_future(load())
    try:
        await asyncio.wait((asked, answering, loading), return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            return await _serve(service, loading.result(), announce, asked, answering, drain)
        return OK if asked.done() else FAILED
    except CoreError as error:
        logger.error("%s", error)
        return MISCONFIGURED if isinstance(error, (ConfigError, PluginError)) else FAILED
    finally:
        service.drain()
        http.stop()
        asked.cancel()
        if not loading.done():
            await _give_up(loading)
        await asyncio.gather(asked, answering, return_exceptions=True)


async def _give_up(loading: asyncio.Future[LoadedEngine]) -> None:
    """Cancel the loading; if that comes too late, close what was loaded."""
    loading.cancel()
    (loaded,) = await asyncio.gather(loading, return_exceptions=True)
    if not isinstance(loaded, BaseException):
        await loaded.close()


async def _serve(
    service: Service,
    engine: LoadedEngine,
    announce: Callable[[Serving], None],
    asked: asyncio.Task[bool],
    answering: asyncio.Task[None],
    drain: float,
) -> int:
    dying = asyncio.create_task(engine.died())
    try:
        service.loaded(engine.serving)
        announce(engine.serving)
        await asyncio.wait((asked, answering, dying), return_when=asyncio.FIRST_COMPLETED)
        if asked.done() and not dying.done():
            service.drain()
            await _until_idle(service, drain, dying)
        if dying.done():
            service.died(dying.result())
            logger.error("The engine stopped: %s", dying.result())
        elif service.num_open:
            logger.warning("%d requests did not end within %g s", service.num_open, drain)
            service.interrupt_all(NotReady("The server stops; the request did not end in time"))
        await _until_idle(service, _LAST_EVENTS_TIMEOUT, None)
        return OK if asked.done() and not dying.done() else FAILED
    finally:
        dying.cancel()
        await engine.close()


async def _until_idle(service: Service, timeout: float, dying: asyncio.Task[str] | None) -> None:
    """Wait until no request is open, at most `timeout` seconds, and no longer than the engine lives."""
    end = time.monotonic() + timeout
    while service.num_open and time.monotonic() < end and not (dying is not None and dying.done()):
        await asyncio.sleep(_POLL)
