"""An engine in a real spawned process: its messages, its death, its parent's death, and what it leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core.config import SchedulerConfig
from core.errors import EngineDead
from core.managers.engine_core import EngineCore
from core.managers.engine_process import EngineProcess
from core.managers.engine_settings import engine_config
from core.managers.messages import (
    AbortRequests,
    AddRequest,
    CacheFlushed,
    FlushCache,
    FromEngine,
    RequestOutput,
    StepNews,
)
from core.sampling.params import SamplingParams
from core.testing.echo_worker import EchoWorker


def echo(**worker: Any) -> partial[EngineCore]:
    return partial(EngineCore, EchoWorker(**worker), SchedulerConfig(max_running_requests=64))


def add(request_id: str, prompt: list[int], max_tokens: int) -> AddRequest:
    return AddRequest(request_id, prompt, SamplingParams(max_tokens=max_tokens, seed=0))


def running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def started(build: Callable[[], EngineCore]) -> AsyncIterator[EngineProcess]:
    engine = EngineProcess(build)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.close()


async def outputs_of(engine: EngineProcess, request_id: str) -> list[RequestOutput]:
    """All news of one request, up to its last."""
    outputs: list[RequestOutput] = []
    while not outputs or outputs[-1].finish_reason is None:
        for message in await engine.receive():
            assert isinstance(message, StepNews)
            outputs += [output for output in message.outputs if output.request_id == request_id]
    return outputs


async def tokens_of(engine: EngineProcess, tokens: list[int]) -> None:
    """Append all tokens of all requests, until the engine ends."""
    while True:
        for message in await engine.receive():
            assert isinstance(message, StepNews)
            tokens += [token for output in message.outputs for token in output.token_ids]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place where socket folders are made; empty again after every test."""
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(autouse=True)
def _nothing_left(folders: Path) -> Any:
    yield
    assert list(folders.iterdir()) == []
    folders.rmdir()


def test_requests_and_aborts_cross_the_processes() -> None:
    async def test() -> None:
        async with started(echo(step_seconds=0.005)) as engine:
            assert engine.alive
            ready = await engine.start()
            assert (ready.vocab_size, ready.max_total_tokens) == (300, 256)
            engine.send([add("a", [5, 6, 7], 5), add("b", [9], 200)])
            outputs = await outputs_of(engine, "a")
            assert [token for output in outputs for token in output.token_ids] == [5, 6, 7, 5, 6]
            assert outputs[-1].finish_reason == "length"
            engine.send([AbortRequests(["b"])])
            stats = None
            while stats is None or stats.num_running:
                for message in await engine.receive():
                    assert isinstance(message, StepNews)
                    stats = message.stats
            engine.send([FlushCache(3)])
            answers: list[FromEngine] = []
            while not any(isinstance(answer, CacheFlushed) for answer in answers):
                answers += await engine.receive()

    run(test())


def test_nothing_is_left_after_close() -> None:
    async def test() -> None:
        engine = EngineProcess(echo())
        await engine.start()
        pid = engine.pid
        assert pid is not None
        assert running(pid)
        start = time.monotonic()
        await engine.close()
        assert time.monotonic() - start < 5, "it was told to end, and had to be killed"
        assert not running(pid)
        await engine.close()
        assert not engine.alive
        with pytest.raises(EngineDead):
            engine.send([])
        with pytest.raises(EngineDead):
            await engine.receive()

    run(test())


def test_a_killed_engine_is_noticed() -> None:
    async def test() -> None:
        async with started(echo(step_seconds=0.01)) as engine:
            engine.send([add("a", [1], 200)])
            await engine.receive()
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            killed = time.monotonic()
            with pytest.raises(EngineDead, match=r"SIGKILL, exit code -9"):
                await tokens_of(engine, [])
            assert time.monotonic() - killed < 1
            assert not engine.alive
            with pytest.raises(EngineDead, match="SIGKILL"):
                await engine.receive()
            with pytest.raises(EngineDead, match="SIGKILL"):
                engine.send([])

    run(test())


def test_an_idle_engine_that_is_killed_is_noticed() -> None:
    async def test() -> None:
        async with started(echo()) as engine:
            waiting = asyncio.create_task(engine.receive())
            await asyncio.sleep(0.05)
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            with pytest.raises(EngineDead, match="SIGKILL"):
                await asyncio.wait_for(waiting, 1)

    run(test())


def test_a_step_that_fails_is_told_with_its_error(capfd: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with started(echo(fail_at_step=3)) as engine:
            engine.send([add("a", [1, 2], 9)])
            tokens: list[int] = []
            with pytest.raises(EngineDead, match="RuntimeError: step 3 was told to fail"):
                await tokens_of(engine, tokens)
            assert tokens == [1, 2], "what came before the failure is not lost"

    run(test())
    assert "Traceback" in capfd.readouterr().err


def test_an_engine_that_cannot_be_built_says_why() -> None:
    async def test() -> None:
        engine = EngineProcess(partial(engine_config, {"model": "m", "pagesize": 16}))  # type: ignore[arg-type]
        with pytest.raises(EngineDead, match=r"^There is no setting 'pagesize'; did you mean page_size"):
            await engine.start()
        assert not engine.alive
        await engine.close()

    run(test())


def test_a_builder_that_ends_the_process_is_noticed() -> None:
    async def test() -> None:
        engine = EngineProcess(partial(os._exit, 7))
        with pytest.raises(EngineDead, match="exit code 7"):
            await engine.start()
        await engine.close()

    run(test())


def test_a_builder_that_cannot_be_sent_leaves_nothing() -> None:
    async def test() -> None:
        engine = EngineProcess(lambda: None)  # type: ignore[arg-type,return-value]
        with pytest.raises(AttributeError, match="pickle"):
            await engine.start()
        await engine.close()

    run(test())


def test_closing_while_it_loads_kills_it() -> None:
    async def test() -> None:
        engine = EngineProcess(partial(time.sleep, 100))  # type: ignore[arg-type]
        starting = asyncio.create_task(engine.start())
        await until(lambda: engine.pid is not None, 5)
        pid = engine.pid
        assert pid is not None
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await engine.close()
        assert not running(pid)

    run(test())


def test_signals_of_a_terminal_do_not_end_the_engine() -> None:
    async def test() -> None:
        async with started(echo(step_seconds=0.01)) as engine:
            assert engine.pid is not None
            engine.send([add("a", [1], 20)])
            await engine.receive()
            os.kill(engine.pid, signal.SIGINT)
            os.kill(engine.pid, signal.SIGTERM)
            outputs = await outputs_of(engine, "a")
            assert outputs[-1].finish_reason == "length"

    run(test())


def test_nor_do_they_while_it_starts() -> None:
    async def test() -> None:
        engine = EngineProcess(echo())
        engine.launch()
        assert engine.pid is not None
        starting = asyncio.create_task(engine.start())
        while not starting.done():
            os.kill(engine.pid, signal.SIGINT)
            os.kill(engine.pid, signal.SIGTERM)
            await asyncio.sleep(0.005)
        await starting
        await engine.close()

    run(test())


PARENT = textwrap.dedent(
    """
    import asyncio, sys, time
    from functools import partial
    from core.config import SchedulerConfig
    from core.managers.engine_core import EngineCore
    from core.managers.engine_process import EngineProcess
    from core.managers.messages import AddRequest
    from core.sampling.params import SamplingParams
    from core.testing.echo_worker import EchoWorker

    async def main(mode):
        build = partial(EngineCore, EchoWorker(step_seconds=0.01), SchedulerConfig())
        engine = EngineProcess(partial(time.sleep, 100) if mode == "loading" else build)
        engine.launch()
        print(engine.pid, flush=True)
        await engine.start()
        if mode == "busy":
            engine.send([AddRequest("a", [1], SamplingParams(max_tokens=250, seed=0))] * 1)
        print("ready", flush=True)
        if mode == "exit":
            return
        while True:
            await engine.receive()

    if __name__ == "__main__":
        asyncio.run(main(sys.argv[1]))
    """
)


@pytest.mark.parametrize("mode", ["idle", "busy", "loading"])
def test_no_orphan_after_the_parent_is_killed(mode: str, tmp_path: Path, folders: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "TMPDIR": str(folders)}
    with subprocess.Popen([sys.executable, script, mode], stdout=subprocess.PIPE, env=environment, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        if mode == "loading":
            time.sleep(1.0)
        else:
            assert parent.stdout.readline() == "ready\n"
        assert running(pid)
        parent.kill()
        parent.wait()
        asyncio.run(until(lambda: not running(pid), 5))


def test_an_interpreter_that_forgets_to_close_exits(tmp_path: Path, folders: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "TMPDIR": str(folders)}
    done = subprocess.run(
        [sys.executable, script, "exit"], stdout=subprocess.PIPE, env=environment, text=True, timeout=30, check=False
    )
    assert done.returncode == 0
    pid = int(done.stdout.split()[0])
    assert not running(pid)
