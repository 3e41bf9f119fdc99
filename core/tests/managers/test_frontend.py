"""The front end over an engine whose model repeats each prompt: text, stops, limits, aborts, slow readers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from core.errors import EngineDead, InvalidRequest, Overloaded
from core.managers.engine_client import EngineClient
from core.managers.engine_process import EngineProcess
from core.managers.engine_thread import EngineThread
from core.managers.frontend import Frontend
from core.managers.messages import (
    AbortRequests,
    AddRequest,
    EngineReady,
    EngineStats,
    FromEngine,
    RequestOutput,
    StepNews,
    ToEngine,
)
from core.managers.outputs import Completion, GenerationOutput
from core.sampling.params import SamplingParams

EOS = 256
Open = Callable[..., Any]


@pytest.fixture
def open_front_end(byte_tokenizer: Any, build_echo: Any, info: Any) -> Open:
    """Opens a front end; keyword arguments are those of `EchoWorker`."""

    @asynccontextmanager
    async def open_(
        *, tokenizer: Any = byte_tokenizer, max_queued_requests: int | None = None, process: bool = False, **worker: Any
    ) -> AsyncIterator[Frontend]:
        build = build_echo(**worker)
        client: EngineClient = EngineProcess(build) if process else EngineThread(build)
        front_end = Frontend(client, info, tokenizer, max_queued_requests=max_queued_requests)
        try:
            await front_end.start()
            yield front_end
        finally:
            await front_end.close()

    return open_


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


async def read_into(news: list[GenerationOutput], stream: AsyncIterator[GenerationOutput]) -> None:
    async for output in stream:
        news.append(output)  # noqa: PERF401 - what came before an error stays


async def news_of(stream: AsyncIterator[GenerationOutput]) -> list[GenerationOutput]:
    return [output async for output in stream]


async def whole(front_end: Frontend, prompt: str | list[int], **params: Any) -> Completion:
    (completion,) = await front_end.submit(prompt, SamplingParams(**params)).completions()
    return completion


async def idle(front_end: Frontend) -> None:
    """Wait until the engine says that nothing runs or waits."""
    while front_end.stats.num_running or front_end.stats.num_waiting:
        await asyncio.sleep(0.005)


# -- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", [False, True])
def test_a_stream_adds_up_to_the_whole(open_front_end: Open, process: bool) -> None:
    async def test() -> None:
        async with open_front_end(process=process) as front_end:
            text = "Grüße, 世界! 🦜 "
            num_bytes = len(text.encode())
            news = await news_of(front_end.submit(text, SamplingParams(max_tokens=2 * num_bytes)))
            assert "".join(output.text for output in news) == 2 * text
            assert [token for output in news for token in output.token_ids] == front_end.encode(2 * text)
            assert [output.finish_reason for output in news[:-1]] == [None] * (len(news) - 1)
            last = news[-1]
            assert (last.finish_reason, last.stop_reason, last.error) == ("length", None, None)
            assert (last.prompt_tokens, last.completion_tokens) == (num_bytes, 2 * num_bytes)
            assert await whole(front_end, text, max_tokens=2 * num_bytes) == Completion(
                index=0,
                text=2 * text,
                token_ids=front_end.encode(2 * text),
                finish_reason="length",
                prompt_tokens=num_bytes,
                cached_tokens=num_bytes - 1,
            )

    run(test())


def test_end_of_sequence_counts_but_is_no_text(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end() as front_end:
            ids = [*front_end.encode("abc"), EOS]
            done = await whole(front_end, ids)
            assert (done.text, done.token_ids, done.finish_reason, done.stop_reason) == ("abc", ids, "stop", None)
            (last,) = [out async for out in front_end.submit(ids, SamplingParams()) if out.finish_reason]
            assert last.completion_tokens == 4
            done = await whole(front_end, ids, ignore_eos=True, max_tokens=7)
            assert (done.text, done.finish_reason) == ("abcabc", "length")
            done = await whole(front_end, ids, ignore_eos=True, max_tokens=7, skip_special_tokens=False)
            assert done.text == "abc<eos>abc"

    run(test())


def test_a_stop_id_is_reported(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end() as front_end:
            (stop,) = front_end.encode("c")
            done = await whole(front_end, "abcd", stop_token_ids=(stop,))
            assert (done.text, done.finish_reason, done.stop_reason) == ("ab", "stop", stop)
            assert done.token_ids == front_end.encode("abc")
            done = await whole(front_end, "abcd", stop_token_ids=(stop,), include_stop=True)
            assert done.text == "abc"
            done = await whole(front_end, "abcd", stop_token_ids=(stop,), min_tokens=3, max_tokens=20)
            assert done.text == "abcdab"

    run(test())


@pytest.mark.parametrize("include_stop", [False, True])
def test_a_stop_string_across_tokens(open_front_end: Open, include_stop: bool) -> None:
    async def test() -> None:
        async with open_front_end(step_seconds=0.002) as front_end:
            params = SamplingParams(stop=("STOP", "HALT"), max_tokens=200, include_stop=include_stop)
            news = await news_of(front_end.submit("one STO two STOP three", params))
            text = "".join(output.text for output in news)
            assert text == ("one STO two STOP" if include_stop else "one STO two ")
            assert all("one STO two ".startswith(text) or include_stop for text in _growing(news))
            last = news[-1]
            assert (last.finish_reason, last.stop_reason) == ("stop", "STOP")
            assert last.completion_tokens == len("one STO two STOP")
            assert [t for output in news for t in output.token_ids] == front_end.encode("one STO two STOP")
            await idle(front_end)
            assert front_end.stats.output_tokens < 30, "the engine was told to stop"

    run(test())


def _growing(news: Sequence[GenerationOutput]) -> list[str]:
    texts = [output.text for output in news]
    return ["".join(texts[: i + 1]) for i in range(len(texts))]


def test_held_back_text_comes_out_at_the_end(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end() as front_end:
            done = await whole(front_end, "one STO", stop=("STOP",), max_tokens=7)
            assert (done.text, done.finish_reason, done.stop_reason) == ("one STO", "length", None)
            done = await whole(front_end, [*front_end.encode("one STO"), EOS], stop=("STOP",))
            assert (done.text, done.finish_reason, done.stop_reason) == ("one STO", "stop", None)

    run(test())


def test_stop_strings_count_after_min_tokens(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end() as front_end:
            done = await whole(front_end, "ab.cd.", stop=(".",), min_tokens=3, max_tokens=50)
            assert done.text == "ab.cd"
            done = await whole(front_end, "ab.cd.", stop=(".",), min_tokens=2, max_tokens=50)
            assert done.text == "ab"

    run(test())


def test_a_stop_with_the_last_token_is_a_stop(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end() as front_end:
            done = await whole(front_end, "ab.", stop=(".",), max_tokens=3)
            assert (done.text, done.finish_reason, done.stop_reason) == ("ab", "stop", ".")

    run(test())


def test_an_incomplete_character_is_held_back(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end() as front_end:
            ids = front_end.encode("ü")
            done = await whole(front_end, ids, max_tokens=3)
            assert done.text == "ü\N{REPLACEMENT CHARACTER}"
            news = await news_of(front_end.submit(ids, SamplingParams(max_tokens=4)))
            assert "\N{REPLACEMENT CHARACTER}" not in "".join(output.text for output in news)

    run(test())


def test_log_probabilities_have_text(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end() as front_end:
            done = await whole(front_end, "ab", max_tokens=3, logprobs=2, prompt_logprobs=1)
            a, b = front_end.encode("ab")
            assert done.logprobs is not None
            assert [(entry.token_id, entry.token, entry.utf8) for entry in done.logprobs] == [
                (a, "a", b"a"),
                (b, "b", b"b"),
                (a, "a", b"a"),
            ]
            assert done.logprobs[0].logprob == -a
            assert [(top[0], top[3]) for top in done.logprobs[0].top] == [(0, 0.0), (1, -1.0)]
            assert done.prompt_logprobs is not None
            assert [(entry.token, entry.logprob) for entry in done.prompt_logprobs] == [("a", None), ("b", -b)]
            done = await whole(front_end, "ab.", stop=(".",), logprobs=0)
            assert done.logprobs is not None
            assert [entry.token for entry in done.logprobs] == ["a", "b", "."]
            assert (await whole(front_end, "ab", max_tokens=1)).logprobs is None

    run(test())


# -- choices ---------------------------------------------------------------------------------------------------------


def test_two_choices_come_interleaved_and_end_once_each(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end() as front_end:
            news = await news_of(front_end.submit("abc", SamplingParams(n=2, max_tokens=6)))
            for index in (0, 1):
                mine = [output for output in news if output.index == index]
                assert "".join(output.text for output in mine) == "abcabc"
                assert [output.finish_reason for output in mine if output.finish_reason] == ["length"]
                assert mine[-1].completion_tokens == 6
            both = await front_end.submit("abc", SamplingParams(n=2, max_tokens=6)).completions()
            assert [(one.index, one.text) for one in both] == [(0, "abcabc"), (1, "abcabc")]

    run(test())


# -- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("context", "pool", "limit"), [(32, 4096, 32), (256, 20, 20)])
def test_the_limit_exactly_and_one_above(open_front_end: Open, context: int, pool: int, limit: int) -> None:
    async def test() -> None:
        async with open_front_end(max_context_len=context, max_total_tokens=pool) as front_end:
            prompt = list(range(limit - 4))
            assert len((await whole(front_end, prompt, max_tokens=4, ignore_eos=True)).token_ids) == 4
            with pytest.raises(
                InvalidRequest, match=rf"{limit - 4} tokens and max_tokens is 5, .* {limit} "
            ) as refusal:
                front_end.submit(prompt, SamplingParams(max_tokens=5))
            assert refusal.value.param == "max_tokens"
            assert len((await whole(front_end, prompt)).token_ids) == 4, "None takes all that fits"
            assert len((await whole(front_end, list(range(limit - 1)))).token_ids) == 1
            with pytest.raises(InvalidRequest, match=rf"{limit} tokens and none is left .* {limit} ") as refusal:
                front_end.submit(list(range(limit)), SamplingParams())
            assert refusal.value.param == "prompt"
            scored = await whole(front_end, list(range(limit)), max_tokens=0, prompt_logprobs=0)
            assert scored.prompt_logprobs is not None
            assert len(scored.prompt_logprobs) == limit
            assert scored.finish_reason == "length"

    run(test())


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ([], {}, "empty"),
        ("", {}, "empty"),
        ([1, 300], {}, "300 at position 1 .* 0 to 299"),
        ([-1], {}, "-1 at position 0"),
        ([1, 2.5], {}, "list of integers"),
        ([1], {"temperature": -1.0}, "temperature"),
        ([1], {"stop_token_ids": (300,)}, "300"),
        ([1], {"n": 0}, "n"),
    ],
)
def test_refusals_queue_nothing(open_front_end: Open, prompt: Any, params: dict[str, Any], message: str) -> None:
    async def test() -> None:
        async with open_front_end() as front_end:
            with pytest.raises(InvalidRequest, match=message):
                front_end.submit(prompt, SamplingParams(**params))
            await whole(front_end, [1], max_tokens=1)
            assert front_end.stats.prompt_tokens == 1

    run(test())


def test_without_a_tokenizer_there_are_only_ids(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end(tokenizer=None) as front_end:
            done = await whole(front_end, [7, 8], max_tokens=3, logprobs=1)
            assert (done.text, done.token_ids, done.finish_reason) == ("", [7, 8, 7], "length")
            assert done.logprobs is not None
            assert [entry.token for entry in done.logprobs] == ["", "", ""]
            with pytest.raises(InvalidRequest, match="no tokenizer"):
                front_end.submit("text", SamplingParams())
            with pytest.raises(InvalidRequest, match="no tokenizer") as refusal:
                front_end.submit([7], SamplingParams(stop=("x",)))
            assert refusal.value.param == "stop"

    run(test())


def test_too_many_waiting_requests_are_refused(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end(max_queued_requests=2, step_seconds=0.02) as front_end:
            first = front_end.submit("a", SamplingParams(max_tokens=20))
            second = front_end.submit("b", SamplingParams(max_tokens=20))
            with pytest.raises(Overloaded, match="2 requests wait already"):
                front_end.submit("c", SamplingParams(max_tokens=1))
            second.abort()
            third = front_end.submit("c", SamplingParams(max_tokens=20))
            await anext(first)
            await anext(third)
            fourth = front_end.submit("d", SamplingParams(max_tokens=1, n=3))
            with pytest.raises(Overloaded):
                front_end.submit("e", SamplingParams(max_tokens=1))
            for stream in (first, third, fourth):
                stream.abort()
            front_end.submit("e", SamplingParams(max_tokens=1)).abort()

    run(test())


def test_a_bound_of_zero_still_serves_one_at_a_time(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end(max_queued_requests=0) as front_end:
            assert (await whole(front_end, "a", max_tokens=1)).text == "a"
            assert (await whole(front_end, "b", max_tokens=1)).text == "b"

    run(test())


def test_an_id_in_use_is_refused(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end(step_seconds=0.005) as front_end:
            stream = front_end.submit("a", SamplingParams(max_tokens=100), request_id="mine")
            with pytest.raises(InvalidRequest, match="'mine' is in use"):
                front_end.submit("b", SamplingParams(), request_id="mine")
            stream.abort()
            again = front_end.submit("b", SamplingParams(max_tokens=2), request_id="mine")
            assert [done.text for done in await again.completions()] == ["bb"]

    run(test())


# -- leaving early ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [(), ("never",)])
def test_an_abort_ends_the_stream_and_the_work(open_front_end: Open, stop: tuple[str, ...]) -> None:
    async def test() -> None:
        async with open_front_end(step_seconds=0.002) as front_end:
            stream = front_end.submit("abcdef", SamplingParams(n=2, max_tokens=200, stop=stop))
            first = await anext(stream)
            stream.abort()
            stream.abort()
            rest = [first, *await news_of(stream)]
            assert sorted(output.index for output in rest if output.finish_reason == "abort") == [0, 1]
            for index in (0, 1):
                mine = [output for output in rest if output.index == index]
                text = "".join(output.text for output in mine)
                assert len(text) == mine[-1].completion_tokens
                assert ("abcdef" * 40).startswith(text)
            await idle(front_end)
            assert front_end.stats.output_tokens < 100

    run(test())


@pytest.mark.parametrize("leave", ["close", "cancel", "cancel completions"])
def test_a_reader_who_leaves_aborts(open_front_end: Open, leave: str) -> None:
    async def test() -> None:
        async with open_front_end(step_seconds=0.002) as front_end:
            stream = front_end.submit("abcdef", SamplingParams(max_tokens=200))
            await anext(stream)
            if leave == "close":
                await stream.aclose()
                assert await news_of(stream) == []
            else:
                reading = asyncio.create_task(news_of(stream) if leave == "cancel" else stream.completions())
                await asyncio.sleep(0.02)
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
            await idle(front_end)
            assert front_end.stats.output_tokens < 100

    run(test())


# -- a scripted engine -----------------------------------------------------------------------------------------------


class ScriptedClient(EngineClient):
    """Keeps what it is sent, and gives what the test puts into `news`."""

    def __init__(self) -> None:
        self.sent: list[ToEngine] = []
        self.news: asyncio.Queue[list[FromEngine]] = asyncio.Queue()
        self.dead = False

    def launch(self) -> None:
        pass

    async def start(self) -> EngineReady:
        return EngineReady(
            max_total_tokens=1000, max_context_len=1000, vocab_size=300, num_pages=10, page_size=1, load_seconds=0.0
        )

    @property
    def alive(self) -> bool:
        return not self.dead

    def send(self, messages: Sequence[ToEngine]) -> None:
        self.sent += messages

    async def receive(self) -> list[FromEngine]:
        return await self.news.get()

    async def close(self) -> None:
        self.dead = True

    def give(self, *outputs: RequestOutput) -> None:
        self.news.put_nowait([StepNews(list(outputs), EngineStats())])


@asynccontextmanager
async def scripted(tokenizer: Any, info: Any) -> AsyncIterator[tuple[Frontend, ScriptedClient]]:
    client = ScriptedClient()
    front_end = Frontend(client, info, tokenizer, max_queued_requests=None)
    await front_end.start()
    yield front_end, client
    await front_end.close()


async def settled(client: ScriptedClient) -> None:
    """Wait until the front end has taken all news in."""
    while not client.news.empty():
        await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_what_the_engine_gets(byte_tokenizer: Any, info: Any) -> None:
    async def test() -> None:
        async with scripted(byte_tokenizer, info) as (front_end, client):
            params = SamplingParams(n=2, seed=2**63 - 1, stop=("x",), temperature=0.5)
            front_end.submit([5, 6], params, request_id="r", extra_key="tenant")
            expected = [
                AddRequest(
                    "1:r-0", [5, 6], SamplingParams(max_tokens=998, seed=2**63 - 1, temperature=0.5), (EOS,), "tenant"
                ),
                AddRequest("1:r-1", [5, 6], SamplingParams(max_tokens=998, seed=0, temperature=0.5), (EOS,), "tenant"),
            ]
            assert client.sent == expected
            client.sent.clear()
            front_end.submit([5], SamplingParams())
            front_end.submit([5], SamplingParams())
            seeds = {message.params.seed for message in client.sent if isinstance(message, AddRequest)}
            assert len(seeds) == 2
            assert all(seed is not None and 0 <= seed < 2**63 for seed in seeds)

    run(test())


@pytest.mark.parametrize("stop", [(), ("never",)])
def test_a_slow_reader_gets_one_merged_news(byte_tokenizer: Any, info: Any, stop: tuple[str, ...]) -> None:
    async def test() -> None:
        async with scripted(byte_tokenizer, info) as (front_end, client):
            stream = front_end.submit("a", SamplingParams(max_tokens=500, stop=stop), request_id="r")
            ids = front_end.encode("hello 世界")
            for token in ids:
                client.give(RequestOutput("1:r-0", [token], cached_tokens=0))
            await settled(client)
            output = await anext(stream)
            assert (output.text, output.token_ids, output.completion_tokens) == ("hello 世界", ids, len(ids))
            client.give(RequestOutput("1:r-0", [ids[0]]))
            client.give(RequestOutput("1:r-0", [ids[1]], finish_reason="length"))
            await settled(client)
            assert [(o.text, o.finish_reason) async for o in stream] == [("he", "length")]

    run(test())


def test_tokens_after_a_stop_string_are_dropped(byte_tokenizer: Any, info: Any) -> None:
    async def test() -> None:
        async with scripted(byte_tokenizer, info) as (front_end, client):
            stream = front_end.submit("a", SamplingParams(max_tokens=500, stop=(".",)), request_id="r")
            client.sent.clear()
            client.give(RequestOutput("1:r-0", front_end.encode("one. two.")))
            client.give(RequestOutput("1:r-0", front_end.encode(" three"), finish_reason="length"))
            await settled(client)
            (output,) = await news_of(stream)
            assert (output.text, output.stop_reason, output.completion_tokens) == ("one", ".", 4)
            assert output.token_ids == front_end.encode("one.")
            assert client.sent == [AbortRequests(["1:r-0"])]

    run(test())


def test_a_request_that_the_engine_gives_up_says_why(byte_tokenizer: Any, info: Any) -> None:
    async def test() -> None:
        async with scripted(byte_tokenizer, info) as (front_end, client):
            stream = front_end.submit("a", SamplingParams(max_tokens=5), request_id="r")
            client.give(RequestOutput("1:r-0", [], finish_reason="abort", error="no room"))
            (output,) = await news_of(stream)
            assert (output.finish_reason, output.error) == ("abort", "no room")

    run(test())


def test_a_token_that_makes_no_text_ends_its_request_alone(byte_tokenizer: Any, info: Any, caplog: Any) -> None:
    async def test() -> None:
        async with scripted(byte_tokenizer, info) as (front_end, client):
            stream = front_end.submit("a", SamplingParams(max_tokens=5, stop=(".",)), request_id="r")
            other = front_end.submit("a", SamplingParams(max_tokens=5, stop=(".",)), request_id="s")
            client.sent.clear()
            (b,) = front_end.encode("b")
            client.give(RequestOutput("1:r-0", ["no id"]), RequestOutput("2:s-0", [b], "length"))  # type: ignore[list-item]
            (output,) = await news_of(stream)
            assert output.finish_reason == "abort"
            assert output.error is not None
            assert "could not make text" in output.error
            assert client.sent == [AbortRequests(["1:r-0"])]
            assert [done.text for done in await other.completions()] == ["b"]

    run(test())
    assert "request r: news could not be taken in" in caplog.text


def test_messages_that_make_no_sense_end_everything(byte_tokenizer: Any, info: Any, caplog: Any) -> None:
    async def test() -> None:
        async with scripted(byte_tokenizer, info) as (front_end, client):
            stream = front_end.submit("a", SamplingParams(max_tokens=5))
            client.news.put_nowait([None])  # type: ignore[list-item]
            with pytest.raises(EngineDead, match="AssertionError"):
                await news_of(stream)
            assert "AssertionError" in await front_end.died()
            with pytest.raises(EngineDead):
                front_end.submit("a", SamplingParams(max_tokens=5))

    run(test())
    assert "the front end failed" in caplog.text


# -- the engine's end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", [False, True])
def test_open_streams_hear_of_the_engines_death(open_front_end: Open, process: bool) -> None:
    async def test() -> None:
        async with open_front_end(fail_at_step=5, process=process) as front_end:
            stream = front_end.submit("abc", SamplingParams(max_tokens=50))
            waiting = asyncio.create_task(front_end.submit("def", SamplingParams(max_tokens=50)).completions())
            news: list[GenerationOutput] = []
            with pytest.raises(EngineDead, match="step 5 was told to fail"):
                await read_into(news, stream)
            assert "".join(output.text for output in news) == "abca"
            with pytest.raises(EngineDead, match="step 5 was told to fail"):
                await waiting
            assert "step 5" in await front_end.died()
            assert not front_end.alive
            with pytest.raises(EngineDead, match=r"takes no requests: .*step 5"):
                front_end.submit("abc", SamplingParams(max_tokens=50))
            with pytest.raises(EngineDead):
                await front_end.flush_cache()
            stream.abort()

    run(test())


def test_close_ends_open_streams(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end(step_seconds=0.002) as front_end:
            waiting = asyncio.create_task(front_end.submit("def", SamplingParams(max_tokens=200)).completions())
            await asyncio.sleep(0.02)
            await front_end.close()
            with pytest.raises(EngineDead, match="closed"):
                await waiting

    run(test())


def test_the_cache_is_flushed(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end() as front_end:
            await whole(front_end, "abcdefgh", max_tokens=2)
            again = await whole(front_end, "abcdefgh", max_tokens=2)
            assert again.cached_tokens == 7
            await idle(front_end)
            num_cached = front_end.stats.num_cached_pages
            assert await front_end.flush_cache() == num_cached > 0
            assert (await whole(front_end, "abcdefgh", max_tokens=2)).cached_tokens == 0

    run(test())


def test_long_texts_are_encoded_off_the_event_loop(open_front_end: Open) -> None:
    async def test() -> None:
        async with open_front_end() as front_end:
            text = "word " * 200_000
            longest, last, running = 0.0, math.inf, True

            async def watch() -> None:
                nonlocal longest, last
                loop = asyncio.get_running_loop()
                while running:
                    last = loop.time()
                    await asyncio.sleep(0.001)
                    longest = max(longest, loop.time() - last)

            watching = asyncio.create_task(watch())
            start = asyncio.get_running_loop().time()
            ids = await front_end.encode_async(text)
            took = asyncio.get_running_loop().time() - start
            running = False
            await watching
            assert len(ids) == len(text)
            assert longest < took / 2
            assert await front_end.encode_async("short") == front_end.encode("short")

    run(test())
