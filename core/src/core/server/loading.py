"""Loads the engine that the server talks to: the decisions and the tokenizer here, the weights in their own process."""

from __future__ import annotations

import importlib.metadata
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, final

from core.config import EngineConfig
from core.managers.engine_process import EngineProcess
from core.managers.frontend import Frontend
from core.server.daemon_thread import in_daemon_thread
from core.server.schema.sampling import SamplingDefaults
from core.server.service import ChatRenderer, Serving

if TYPE_CHECKING:
    from core.managers.prepare import Prepared

_REPORTED = ("torch", "transformers", "starlette", "uvicorn")


@final
class ServedEngine:
    """A front end whose engine is a process, with what the server shows of it."""

    def __init__(self, front_end: Frontend, serving: Serving) -> None:
        self._front_end = front_end
        self.serving = serving

    async def died(self) -> str:
        """Return when the engine has stopped, with the reason."""
        return await self._front_end.died()

    async def close(self) -> None:
        """Stop the engine process and wait for its end."""
        await self._front_end.close()


async def load_engine(config: EngineConfig) -> ServedEngine:
    """Load a model. Cancelling it ends the engine process.

    Raises:
        ConfigError, ModelError, PluginError: before any weight is read, unless a weight itself is at fault.
        EngineDead: the engine process ended while it loaded.
    """
    prepared = await in_daemon_thread(partial(_prepare, config))
    process = EngineProcess(_engine_of(prepared), log_level=logging.getLogger().getEffectiveLevel())
    process.launch()
    try:
        tokenizer, chat = await in_daemon_thread(partial(_text_side, prepared))
        waiting = config.scheduler.max_queued_requests
        front_end = Frontend(process, prepared.info, tokenizer, max_queued_requests=waiting)
        await front_end.start()
    except BaseException:
        await process.close()
        raise
    table = prepared.selection.table()
    serving = Serving(
        engine=front_end,
        chat=chat,
        defaults=SamplingDefaults.of_model(prepared.info.generation_defaults),
        info=_shown(prepared),
        table=table,
    )
    return ServedEngine(front_end, serving)


def _prepare(config: EngineConfig) -> Prepared:
    from core.managers.prepare import prepare

    return prepare(config)


def _engine_of(prepared: Prepared) -> Any:
    from core.managers.build import build_engine_core

    return partial(build_engine_core, prepared)


def _text_side(prepared: Prepared) -> tuple[Any | None, ChatRenderer]:
    from core.managers.chat_template import ChatTemplate
    from core.managers.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(prepared)
    return tokenizer, ChatTemplate(tokenizer, prepared.config.model.chat_template)


def _shown(prepared: Prepared) -> dict[str, Any]:
    """What `/server_info` shows beside the limits and figures; JSON values only."""
    return {
        "config": prepared.config.model_dump(mode="json"),
        "selection": prepared.selection.to_json(),
        "selection_table": prepared.selection.table(),
        "versions": {name: importlib.metadata.version(name) for name in _REPORTED},
    }
