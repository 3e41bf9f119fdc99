"""A server around the fake engine: in process, and on a real port."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from core.server.app import build_app
from core.server.binding import bind, url_of
from core.server.http_server import HttpServer
from core.server.service import Service, Serving


def _load_fakes() -> ModuleType:
    # The import mode of the tests puts no folder on the path.
    spec = importlib.util.spec_from_file_location("fake_engine", Path(__file__).with_name("fake_engine.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fake_engine"] = module
    spec.loader.exec_module(module)
    return module


fakes = _load_fakes()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Bench:
    """A service with its fakes."""

    service: Service
    engine: Any
    template: Any

    @classmethod
    def make(cls, model: str = "org/tiny", served_name: str | None = "tiny", delay: float = 0.0) -> Bench:
        service = Service(model, served_name, max_body_bytes=1 << 20)
        engine, template = fakes.FakeEngine(delay), fakes.FakeTemplate()
        service.loaded(Serving(engine, template, info={"selection": {"attention": "fake"}}))
        return cls(service, engine, template)

    def metric(self, sample: str) -> float:
        """The value of one line of `/metrics`."""
        for line in self.service.metrics.text().decode().splitlines():
            if line.startswith(f"{sample} "):
                return float(line.rsplit(" ", 1)[1])
        raise KeyError(sample)


@pytest.fixture
def bench() -> Bench:
    return Bench.make()


@pytest.fixture
async def client(bench: Bench) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_app(bench.service), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as http:
        yield http


@dataclass
class LiveServer:
    """The same on a real port, in a thread with an event loop of its own."""

    url: str
    bench: Bench
    loop: asyncio.AbstractEventLoop


@pytest.fixture
def live_server() -> Iterator[LiveServer]:
    started = threading.Event()
    made: list[Any] = []

    async def main() -> None:
        listener = bind("127.0.0.1", 0)
        bench = Bench.make(delay=0.001)
        http = HttpServer(build_app(bench.service), listener)
        made.extend([LiveServer(url_of(listener), bench, asyncio.get_running_loop()), http])
        started.set()
        await http.serve()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert started.wait(10)
    server, http = made
    yield server
    server.loop.call_soon_threadsafe(http.stop)
    thread.join(10)
    assert not thread.is_alive()
