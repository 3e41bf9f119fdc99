"""`Engine` over an engine whose model repeats each prompt."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.config import SchedulerConfig
from core.errors import ConfigError, EngineDead, InvalidRequest, ModelError
from core.managers.engine import Engine
from core.managers.engine_core import EngineCore
from core.managers.engine_settings import engine_config
from core.sampling.params import SamplingParams
from core.testing.echo_worker import EchoWorker

OpenEngine = Callable[..., Any]


@pytest.fixture
def open_engine(byte_tokenizer: Any, build_echo: Any, info: Any) -> OpenEngine:
    """Opens an engine; keyword arguments are those of `EchoWorker`."""

    @contextmanager
    def open_(tokenizer: Any = byte_tokenizer, **worker: Any) -> Iterator[Engine]:
        with Engine.from_parts(build_echo(**worker), info, lambda: tokenizer) as engine:
            yield engine

    return open_


def at_rest(engine: Engine) -> bool:
    return engine.stats.num_running == 0 and engine.stats.num_waiting == 0


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.005)


def engine_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("engine")]


def test_one_prompt_and_many(open_engine: OpenEngine) -> None:
    with open_engine() as engine:
        four = SamplingParams(max_tokens=4)
        (done,) = engine.generate("ab", four)
        assert (done.text, done.finish_reason, done.index) == ("abab", "length", 0)
        assert [done.text for done in engine.generate(["ab", "c"], four)] == ["abab", "cccc"]
        ids = engine.encode("ab")
        assert engine.generate(ids, four)[0].token_ids == ids * 2
        assert engine.generate(np.array(ids), four)[0].token_ids == ids * 2
        mixed = engine.generate([ids, "c", tuple(ids)], four)
        assert [done.text for done in mixed] == ["abab", "cccc", "abab"]
        assert engine.decode(ids) == "ab"


def test_nothing_asked_nothing_done(open_engine: OpenEngine) -> None:
    with open_engine() as engine:
        assert engine.generate([]) == []
        assert engine.generate([], [], progress=True) == []
        assert engine.chat([]) == []


def test_parameters_for_each_prompt_and_several_choices(open_engine: OpenEngine) -> None:
    with open_engine() as engine:
        each = [SamplingParams(max_tokens=1, n=2), SamplingParams(max_tokens=3)]
        found = [(done.index, done.text) for done in engine.generate(["ab", "c"], each)]
        assert found == [(0, "a"), (1, "a"), (0, "ccc")]
        with pytest.raises(InvalidRequest, match="2 SamplingParams were given for 1 prompts"):
            engine.generate(["ab"], each)


def test_a_prompt_that_cannot_be_served_is_named_and_nothing_runs(open_engine: OpenEngine) -> None:
    with open_engine() as engine:
        with pytest.raises(InvalidRequest, match=r"Prompt 1: .* empty"):
            engine.generate(["ab", "", "c"], SamplingParams(max_tokens=1))
        with pytest.raises(InvalidRequest, match=r"Prompt 0: .* 1000"):
            engine.generate([[1000], [1]], SamplingParams(max_tokens=1))
        engine.generate([[1]], SamplingParams(max_tokens=1))
        assert engine.stats.prompt_tokens == 1


def test_many_prompts_from_several_threads(open_engine: OpenEngine) -> None:
    with open_engine(max_context_len=64) as engine:
        texts = [f"prompt {i} " for i in range(100)]
        results: dict[int, list[str]] = {}

        def work(number: int) -> None:
            params = SamplingParams(max_tokens=number + 10)
            results[number] = [done.text for done in engine.generate(texts, params, progress=False)]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number in range(3):
            assert results[number] == [(text * 3)[: number + 10] for text in texts]


def test_a_bar_counts_choices_when_asked_for(open_engine: OpenEngine, capsys: pytest.CaptureFixture[str]) -> None:
    with open_engine() as engine:
        engine.generate(["ab", "c"], SamplingParams(max_tokens=3, n=2), progress=True)
        assert "4/4" in capsys.readouterr().err
        engine.generate(["ab", "c"], SamplingParams(max_tokens=3))
        assert capsys.readouterr().err == "", "stderr is no terminal here"


def test_a_stream_in_the_callers_event_loop(open_engine: OpenEngine) -> None:
    with open_engine(step_seconds=0.002) as engine:

        async def test() -> None:
            news = [output async for output in engine.stream("abc", SamplingParams(max_tokens=5))]
            assert "".join(output.text for output in news) == "abcab"
            assert news[-1].finish_reason == "length"
            with pytest.raises(InvalidRequest, match="empty"):
                await anext(engine.stream([]))
            async with aclosing(engine.stream("abc", SamplingParams(max_tokens=200))) as stream:
                async for _ in stream:
                    break

        asyncio.run(test())
        until(lambda: at_rest(engine))
        assert engine.stats.output_tokens < 100


def test_cancelling_a_stream_aborts_it(open_engine: OpenEngine) -> None:
    with open_engine(step_seconds=0.002) as engine:

        async def read() -> None:
            async for _ in engine.stream("abc", SamplingParams(max_tokens=200)):
                pass

        async def test() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read(), 0.05)

        asyncio.run(test())
        until(lambda: at_rest(engine))
        assert engine.stats.output_tokens < 100


def test_an_interrupted_batch_is_aborted(open_engine: OpenEngine) -> None:
    with open_engine(step_seconds=0.005) as engine:

        def interrupt() -> None:
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            engine.generate(["abc", "def"], SamplingParams(max_tokens=240))
        until(lambda: at_rest(engine))
        assert 0 < engine.stats.output_tokens < 200
        assert engine.generate("x", SamplingParams(max_tokens=1))[0].text == "x"


def test_what_the_model_recommends_is_the_default(byte_tokenizer: Any, build_echo: Any, info: Any) -> None:
    info.generation_defaults.update(temperature=0.6, top_p=0.95, top_k=None, eos_token_id=7)
    with Engine.from_parts(build_echo(), info, lambda: byte_tokenizer) as engine:
        assert engine.default_params() == SamplingParams(temperature=0.6, top_p=0.95)


def test_chat_goes_through_the_template(open_engine: OpenEngine, byte_tokenizer: Any, monkeypatch: Any) -> None:
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
    monkeypatch.setattr(byte_tokenizer, "chat_template", template)
    with open_engine() as engine:
        question = [{"role": "user", "content": "Hi"}]
        expected = "[user]Hi[assistant]"
        params = SamplingParams(max_tokens=len(expected))
        assert [done.text for done in engine.chat(question, params)] == [expected]
        assert [done.text for done in engine.chat([question, question], params)] == [expected, expected]


def test_without_a_template_chat_is_refused(open_engine: OpenEngine) -> None:
    with open_engine() as engine, pytest.raises(InvalidRequest, match="template"):
        engine.chat([{"role": "user", "content": "Hi"}])


def test_without_a_tokenizer_there_are_only_ids(open_engine: OpenEngine) -> None:
    with open_engine(tokenizer=None) as engine:
        assert engine.generate([7, 8], SamplingParams(max_tokens=3))[0].token_ids == [7, 8, 7]
        with pytest.raises(InvalidRequest, match="no tokenizer"):
            engine.generate("text")
        with pytest.raises(InvalidRequest, match="no tokenizer"):
            engine.decode([1])


def test_the_cache_is_flushed(open_engine: OpenEngine) -> None:
    with open_engine() as engine:
        engine.generate("abcd", SamplingParams(max_tokens=1))
        assert engine.flush_cache() > 0
        assert engine.flush_cache() == 0


# -- its end ---------------------------------------------------------------------------------------------------------


def test_shutdown_ends_both_threads_and_refuses_more(open_engine: OpenEngine) -> None:
    with open_engine() as engine:
        assert len(engine_threads()) == 2
        engine.shutdown()
        engine.shutdown()
        assert engine_threads() == []
        with pytest.raises(EngineDead, match="shut down"):
            engine.generate("a")


def test_shutdown_ends_a_batch_under_way(open_engine: OpenEngine) -> None:
    with open_engine(step_seconds=0.005) as engine:
        threading.Timer(0.1, engine.shutdown).start()
        with pytest.raises(EngineDead, match="closed"):
            engine.generate("abc", SamplingParams(max_tokens=250))


def test_a_forgotten_engine_is_collected(byte_tokenizer: Any, build_echo: Any, info: Any) -> None:
    engine = Engine.from_parts(build_echo(), info, lambda: byte_tokenizer)
    engine.generate("a", SamplingParams(max_tokens=1))
    assert engine_threads()
    del engine
    gc.collect()
    until(lambda: engine_threads() == [])


def test_a_failure_reaches_the_caller(open_engine: OpenEngine) -> None:
    with open_engine(fail_at_step=3) as engine:
        with pytest.raises(EngineDead, match="step 3 was told to fail"):
            engine.generate("abc", SamplingParams(max_tokens=9))
        with pytest.raises(EngineDead, match="step 3 was told to fail"):
            engine.generate("abc", SamplingParams(max_tokens=9))


@pytest.mark.parametrize("where", ["build", "tokenizer"])
def test_an_engine_that_cannot_be_built_leaves_no_thread(where: str, build_echo: Any, info: Any) -> None:
    def refuse() -> Any:
        raise ModelError("a file is missing")

    with pytest.raises(ModelError, match="a file is missing"):
        Engine.from_parts(refuse if where == "build" else build_echo(), info, refuse if where == "tokenizer" else str)
    assert engine_threads() == []


def test_a_template_that_is_none_leaves_no_thread(build_echo: Any, info: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Engine.from_parts(build_echo(), info, lambda: None, tmp_path / "missing.jinja")
    assert engine_threads() == []


SCRIPT = textwrap.dedent(
    """
    import sys
    from functools import partial
    from types import SimpleNamespace
    from core.config import SchedulerConfig
    from core.managers.engine import Engine
    from core.managers.engine_core import EngineCore
    from core.sampling.params import SamplingParams
    from core.testing.echo_worker import EchoWorker

    info = SimpleNamespace(eos_token_ids=(), generation_defaults={})
    build = partial(EngineCore, EchoWorker(step_seconds=0.01), SchedulerConfig())
    engine = Engine.from_parts(build, info, lambda: None)
    print(engine.generate([5], SamplingParams(max_tokens=2))[0].token_ids, flush=True)
    if sys.argv[1] == "interrupted":
        engine.generate([5], SamplingParams(max_tokens=200))
    """
)


def test_an_interpreter_exits_without_a_shutdown(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), "forgotten"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[5, 5]\n", "")


def test_an_interrupted_interpreter_exits(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), "interrupted"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[5, 5]\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=10)
        assert process.returncode == -signal.SIGINT
        assert errors.splitlines()[-1] == "KeyboardInterrupt"


# -- settings --------------------------------------------------------------------------------------------------------


def test_settings_find_their_components() -> None:
    config = engine_config({"model": "m", "page_size": "1", "max_running_requests": 8, "attention_backend": "torch"})
    assert (config.model.model, config.cache.page_size) == ("m", 1)
    assert (config.scheduler.max_running_requests, config.attention.attention_backend) == (8, "torch")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pagesize": 1}, "no setting 'pagesize'; did you mean page_size"),
        ({"xyzzy": 1}, "no setting 'xyzzy'; .*page_size"),
        ({"page_size": 0}, "page_size: .*got 0"),
        ({"dtype": "float8"}, "dtype: .*got 'float8'"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Engine(model="m", **settings)


def test_a_worker_of_ones_own(info: Any) -> None:
    def build() -> EngineCore:
        return EngineCore(EchoWorker(vocab_size=10), SchedulerConfig(max_running_requests=4))

    with Engine.from_parts(build, info, lambda: None) as engine:
        assert engine.ready.vocab_size == 10
