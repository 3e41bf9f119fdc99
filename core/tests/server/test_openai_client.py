"""The official client against a real port."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

USER: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
def api(live_server: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_models(api: openai.OpenAI) -> None:
    assert [model.id for model in api.models.list()] == ["tiny"]
    assert api.models.retrieve("tiny").owned_by == "core"
    with pytest.raises(openai.NotFoundError):
        api.models.retrieve("other")


def test_chat(api: openai.OpenAI) -> None:
    answer = api.chat.completions.create(model="tiny", messages=USER, max_completion_tokens=4, n=2)
    assert [choice.message.content for choice in answer.choices] == ["user", "user"]
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 9
    assert answer._request_id == answer.id


def test_chat_logprobs(api: openai.OpenAI) -> None:
    answer = api.chat.completions.create(model="tiny", messages=USER, max_tokens=2, logprobs=True, top_logprobs=1)
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.content is not None
    token = answer.choices[0].logprobs.content[0]
    assert (token.token, token.bytes, token.top_logprobs[0].token) == ("u", [117], "a")


def test_chat_stream(api: openai.OpenAI) -> None:
    stream = api.chat.completions.create(
        model="tiny", messages=USER, max_tokens=4, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = stream
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "user"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 4 + ["length"]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 4


def test_chat_stream_helper(api: openai.OpenAI, live_server: Any) -> None:
    live_server.bench.engine.script = [*b"user", 257]
    with api.chat.completions.stream(model="tiny", messages=USER, max_tokens=9, n=2) as stream:
        final = stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == ["user", "user"]


def test_completions(api: openai.OpenAI) -> None:
    answer = api.completions.create(model="tiny", prompt=["ab", "c"], max_tokens=2, logprobs=1, echo=True)
    assert [choice.text for choice in answer.choices] == ["abab", "ccc"]
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.tokens == ["<s>", "a", "b", "a", "b"]


def test_completions_stream(api: openai.OpenAI) -> None:
    chunks = list(api.completions.create(model="tiny", prompt=[97, 98], max_tokens=3, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "aba"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "length"]


def test_errors_are_the_clients_own(api: openai.OpenAI, live_server: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        api.chat.completions.create(model="tiny", messages=USER, temperature=3)
    assert refused.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        api.completions.create(model="gpt-9", prompt="a")
    assert missing.value.code == "model_not_found"
    live_server.bench.engine.max_submitted = 0
    with pytest.raises(openai.InternalServerError) as busy:
        api.completions.create(model="tiny", prompt="a")
    assert (busy.value.status_code, busy.value.code) == (503, "overloaded")


def test_an_error_inside_a_stream_is_raised(api: openai.OpenAI, live_server: Any) -> None:
    live_server.bench.engine.failure, live_server.bench.engine.failure_step = "no room", 3
    received = []
    with pytest.raises(openai.APIError, match="no room"):
        received.extend(api.chat.completions.create(model="tiny", messages=USER, max_tokens=9, stream=True))
    assert len(received) == 4


def test_leaving_a_stream_aborts_it(api: openai.OpenAI, live_server: Any) -> None:
    live_server.bench.engine.delay = 0.01
    stream = api.chat.completions.create(model="tiny", messages=USER, max_tokens=900, stream=True)
    next(iter(stream))
    stream.close()
    for _ in range(400):
        if live_server.bench.engine.aborted:
            return
        live_server.loop.call_soon_threadsafe(lambda: None)
        asyncio.run(asyncio.sleep(0.005))
    pytest.fail("the request was not aborted")


def test_the_async_client(live_server: Any) -> None:
    async def use() -> tuple[str | None, str, str]:
        async with openai.AsyncOpenAI(base_url=f"{live_server.url}/v1", api_key="none", max_retries=0) as client:
            whole, completion = await asyncio.gather(
                client.chat.completions.create(model="tiny", messages=USER, max_tokens=4),
                client.completions.create(model="tiny", prompt="ab", max_tokens=2),
            )
            stream = await client.chat.completions.create(model="tiny", messages=USER, max_tokens=4, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            return whole.choices[0].message.content, completion.choices[0].text, text

    assert asyncio.run(use()) == ("user", "ab", "user")


def test_the_async_client_cancelled(live_server: Any) -> None:
    engine = live_server.bench.engine
    engine.delay = 0.01

    async def use() -> None:
        async with openai.AsyncOpenAI(base_url=f"{live_server.url}/v1", api_key="none", max_retries=0) as client:
            request = client.chat.completions.create(model="tiny", messages=USER, max_tokens=900)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(request, 0.2)
            for _ in range(200):
                if engine.aborted and not engine.running:
                    return
                await asyncio.sleep(0.01)
            pytest.fail("the request was not aborted")

    asyncio.run(use())
