"""An engine in a thread of this process: its messages, its failures, its end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from core.errors import EngineDead, ModelError
from core.managers.engine_core import EngineCore
from core.managers.engine_thread import EngineThread
from core.managers.messages import AddRequest, StepNews
from core.sampling.params import SamplingParams


def add(request_id: str, prompt: list[int], max_tokens: int) -> AddRequest:
    return AddRequest(request_id, prompt, SamplingParams(max_tokens=max_tokens, seed=0))


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "engine"]


async def take_until_the_end(engine: EngineThread, request_id: str, tokens: list[int]) -> None:
    """Append a request's tokens until its last news."""
    while True:
        for message in await engine.receive():
            assert isinstance(message, StepNews)
            for output in message.outputs:
                assert output.request_id == request_id
                tokens += output.token_ids
                if output.finish_reason is not None:
                    return


def test_it_is_ready_serves_and_ends(build_echo: Any) -> None:
    async def test() -> None:
        engine = EngineThread(build_echo())
        assert not engine.alive
        ready = await engine.start()
        assert ready.vocab_size == 300
        assert await engine.start() is ready
        assert engine.alive
        engine.send([add("a", [5, 6, 7], 200)])
        tokens: list[int] = []
        await take_until_the_end(engine, "a", tokens)
        assert tokens == ([5, 6, 7] * 67)[:200]
        assert len(engine_threads()) == 1
        await engine.close()
        await engine.close()
        assert engine_threads() == []
        assert not engine.alive
        for _ in range(2):
            with pytest.raises(EngineDead, match="closed"):
                await engine.receive()
        with pytest.raises(EngineDead, match="closed"):
            engine.send([])

    run(test())


def test_an_engine_that_cannot_be_built_raises_its_own_error() -> None:
    def build() -> EngineCore:
        raise ModelError("a shard is missing")

    async def test() -> None:
        engine = EngineThread(build)
        with pytest.raises(ModelError, match="a shard is missing"):
            await engine.start()
        await engine.close()
        assert engine_threads() == []

    run(test())


def test_code_that_exits_ends_the_engine_and_no_more() -> None:
    def build() -> EngineCore:
        raise SystemExit(3)

    async def test() -> None:
        engine = EngineThread(build)
        with pytest.raises(EngineDead, match="SystemExit: 3"):
            await engine.start()
        await engine.close()

    run(test())


def test_a_step_that_fails_ends_it_with_its_error(build_echo: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        engine = EngineThread(build_echo(fail_at_step=3))
        await engine.start()
        engine.send([add("a", [1, 2], 9)])
        tokens: list[int] = []
        with pytest.raises(EngineDead, match="RuntimeError: step 3 was told to fail"):
            await take_until_the_end(engine, "a", tokens)
        assert tokens == [1, 2], "what came before the failure is not lost"
        assert not engine.alive
        with pytest.raises(EngineDead, match="step 3"):
            engine.send([])
        await engine.close()

    run(test())
    assert "the engine failed" in caplog.text


def test_closing_wakes_who_waits(build_echo: Any) -> None:
    async def test() -> None:
        engine = EngineThread(build_echo())
        await engine.start()
        waiting = asyncio.create_task(engine.receive())
        await asyncio.sleep(0.01)
        await engine.close()
        with pytest.raises(EngineDead, match="closed"):
            await waiting

    run(test())


def test_closing_while_it_loads_does_not_wait_long(build_echo: Any, caplog: pytest.LogCaptureFixture) -> None:
    may_go_on = threading.Event()

    def build() -> EngineCore:
        may_go_on.wait(20)
        core: EngineCore = build_echo()()
        return core

    async def test() -> None:
        engine = EngineThread(build)
        starting = asyncio.create_task(engine.start())
        await asyncio.sleep(0.01)
        start = time.monotonic()
        await engine.close()
        assert time.monotonic() - start < 5
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        may_go_on.set()
        assert engine.thread is not None
        await asyncio.to_thread(engine.thread.join, 10)
        assert engine_threads() == [], "it ends by itself when it can"

    run(test())
    assert "is left behind" in caplog.text


def test_the_last_gauges_show_an_engine_at_rest(build_echo: Any) -> None:
    async def test() -> None:
        engine = EngineThread(build_echo())
        await engine.start()
        engine.send([add("a", [5, 6, 7], 3)])
        news: list[StepNews] = []
        while not news or news[-1].outputs[-1].finish_reason is None:
            news += [message for message in await engine.receive() if isinstance(message, StepNews)]
        assert (news[-1].stats.num_running, news[-1].stats.num_waiting) == (0, 0)
        await engine.close()

    run(test())
