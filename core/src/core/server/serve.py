"""`run`: the server process. Takes the port first and imports what is heavy afterwards."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from core.config import EngineConfig, ServerConfig
from core.errors import ConfigError
from core.log import configure_logging
from core.server.binding import bind, url_of

if TYPE_CHECKING:
    from core.server.lifecycle import LoadedEngine
    from core.server.service import Serving

logger = logging.getLogger("core.server")

Loader = Callable[[EngineConfig], "Awaitable[LoadedEngine]"]


def run(engine_config: EngineConfig, server_config: ServerConfig, loader: Loader | None = None) -> int:
    """Serve until a signal or the engine's death; returns the process' exit code.

    0 after a drained stop, 1 if the model cannot be served or the engine died, 2 if the port is taken or a setting or
    plugin does not fit; a second signal ends the process at once with 128 + its number. `loader` replaces what loads
    the engine, for tests.
    """
    started = time.monotonic()
    configure_logging(server_config.log_level)
    try:
        listener = bind(server_config.host, server_config.port)
    except ConfigError as error:
        logger.error("%s", error)
        return 2

    from core.server.app import build_app
    from core.server.daemon_thread import any_abandoned
    from core.server.http_server import HttpServer, new_event_loop
    from core.server.lifecycle import live
    from core.server.service import Service

    model = engine_config.model
    service = Service(model.model, model.served_model_name)
    url = url_of(listener)
    logger.info("listening on %s, loading %s", url, model.model)

    def announce(serving: Serving) -> None:
        logger.info(
            "ready after %.1f s on %s: %s\n%s", time.monotonic() - started, url, service.served_name, serving.table
        )

    async def main() -> int:
        http = HttpServer(build_app(service), listener)
        load = partial(loader or _load_engine, engine_config)
        return await live(http, service, load, announce, server_config.drain_timeout)

    with asyncio.Runner(loop_factory=new_event_loop()) as runner:
        code = runner.run(main())
    if any_abandoned():
        # Python would wait for, or crash in, a thread that is still importing or downloading. Nothing is left to do.
        sys.stdout.flush()
        logging.shutdown()
        os._exit(code)
    return code


async def _load_engine(config: EngineConfig) -> LoadedEngine:
    from core.server.loading import load_engine

    return await load_engine(config)
