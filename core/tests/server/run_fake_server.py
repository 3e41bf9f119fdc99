"""Not a test: the server process around the fake engine, which test_lifecycle.py starts, with its wishes as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from fake_engine import FakeEngine, FakeLoaded

from core.config import EngineConfig, ModelConfig, ServerConfig
from core.errors import ModelError
from core.server.daemon_thread import in_daemon_thread
from core.server.lifecycle import LoadedEngine
from core.server.serve import run

WISHES: dict[str, Any] = json.loads(sys.argv[1])


class Loaded(FakeLoaded):
    async def died(self) -> str:
        if "die_after" in WISHES:
            await asyncio.sleep(WISHES["die_after"])
            self.engine.dead.set()
        return await super().died()

    async def close(self) -> None:
        await super().close()
        print("engine closed", flush=True)


async def load(config: EngineConfig) -> LoadedEngine:
    print("heavy modules:", sorted({"torch", "transformers"} & set(sys.modules)), flush=True)
    if WISHES.get("fails"):
        raise ModelError("config.json is missing")
    try:
        await in_daemon_thread(lambda: time.sleep(WISHES.get("load_seconds", 0)))
    except asyncio.CancelledError:
        print("load cancelled", flush=True)
        raise
    return Loaded(FakeEngine(delay=WISHES.get("delay", 0.01)))


server = ServerConfig(port=WISHES.get("port", 0), drain_timeout=WISHES.get("drain_timeout", 5))
raise SystemExit(run(EngineConfig(model=ModelConfig(model="tiny")), server, load))
