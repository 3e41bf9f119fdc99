"""uvicorn on a socket that is already bound, with signals left to `lifecycle.py`."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

import uvicorn
from starlette.types import ASGIApp

from core.server.binding import BACKLOG

LAST_BYTES_TIMEOUT = 1
"""Seconds that connections get to take the last bytes of their answers when the server ends."""


@final
class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves an application on a bound socket until it is told to stop."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        for name in ("uvicorn", "uvicorn.error"):
            logging.getLogger(name).setLevel(logging.WARNING)
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=LAST_BYTES_TIMEOUT,
        )
        self._server = _Uvicorn(config)
        self._listener = listener

    async def serve(self) -> None:
        """Answer requests until `stop`; closes the socket at the end."""
        await self._server.serve(sockets=[self._listener])

    def stop(self) -> None:
        """Close the socket and idle connections; `serve` returns when answers under way are sent."""
        self._server.should_exit = True


def new_event_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop: uvloop's where there is one, None for Python's own."""
    return uvicorn.Config(app="", loop="auto").get_loop_factory()
