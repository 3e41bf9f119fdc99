"""`/v1/chat/completions`: shapes of the whole answer and of the stream."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

PATH = "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]


async def chat(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post(PATH, json={"messages": USER, **fields})
    assert response.status_code == 200, response.text
    return dict(response.json())


async def chunks_of(client: httpx.AsyncClient, **fields: Any) -> list[dict[str, Any]]:
    response = await client.post(PATH, json={"messages": USER, "stream": True, **fields})
    assert response.status_code == 200, response.text
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


async def test_the_whole_answer(client: httpx.AsyncClient, bench: Any) -> None:
    answer = await chat(client, max_tokens=4)
    assert answer["id"].startswith("chatcmpl-")
    assert answer["object"] == "chat.completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "user", "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
        }
    ]
    assert answer["usage"]["completion_tokens"] == 4
    # The template's text is encoded as it is: no second beginning-of-text token.
    assert bench.engine.submitted[0][1] == list(b"user:hi\nassistant:")


async def test_the_stream(client: httpx.AsyncClient) -> None:
    chunks = await chunks_of(client, max_tokens=3)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""},
        {"content": "u"},
        {"content": "s"},
        {"content": "e"},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "length"]
    assert not any("usage" in chunk for chunk in chunks)


async def test_n_choices_each_with_role_and_one_finish_reason(client: httpx.AsyncClient) -> None:
    chunks = await chunks_of(client, max_tokens=2, n=3)
    for index in range(3):
        mine = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert [choice["delta"].get("role") for choice in mine] == ["assistant", None, None]
        assert [choice["finish_reason"] for choice in mine] == [None, None, "length"]
    assert [choice["index"] for choice in (await chat(client, max_tokens=2, n=3))["choices"]] == [0, 1, 2]


async def test_the_end_without_text_has_an_empty_delta(client: httpx.AsyncClient, bench: Any) -> None:
    bench.engine.script = [104, 257]
    last = (await chunks_of(client))[-1]["choices"][0]
    assert last["delta"] == {}
    assert last["finish_reason"] == "stop"


@pytest.mark.parametrize("options", [None, {}, {"include_usage": True}])
async def test_usage(client: httpx.AsyncClient, options: dict[str, Any] | None) -> None:
    chunks = await chunks_of(client, max_tokens=2, n=2, stream_options=options)
    if options:
        *others, last = chunks
        assert all(chunk["usage"] is None for chunk in others)
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == 4
        assert last["usage"]["prompt_tokens"] == 18
    else:
        assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


async def test_logprobs_without_top_logprobs(client: httpx.AsyncClient) -> None:
    content = (await chat(client, max_tokens=2, logprobs=True))["choices"][0]["logprobs"]["content"]
    assert content == [
        {"token": "u", "logprob": -1.17, "bytes": [117], "top_logprobs": []},
        {"token": "s", "logprob": -1.15, "bytes": [115], "top_logprobs": []},
    ]


async def test_top_logprobs(client: httpx.AsyncClient) -> None:
    content = (await chat(client, max_tokens=1, logprobs=True, top_logprobs=2))["choices"][0]["logprobs"]["content"]
    assert content[0]["top_logprobs"] == [
        {"token": "a", "logprob": -0.97, "bytes": [97]},
        {"token": "b", "logprob": -0.98, "bytes": [98]},
    ]


async def test_a_stream_has_one_logprob_a_token_even_of_unfinished_characters(
    client: httpx.AsyncClient, bench: Any
) -> None:
    bench.engine.script = list("€".encode())
    chunks = await chunks_of(client, max_tokens=3, logprobs=True)
    choices = [chunk["choices"][0] for chunk in chunks[1:]]
    assert [choice["delta"].get("content") for choice in choices] == ["", "", "€"]
    assert [entry["bytes"] for choice in choices for entry in choice["logprobs"]["content"]] == [[226], [130], [172]]


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
async def test_a_list_of_text_parts_is_their_concatenation(client: httpx.AsyncClient, bench: Any, role: str) -> None:
    parts = [{"type": "text", "text": "good "}, {"type": "text", "text": "day"}]
    for content in ("good day", parts):
        await chat(client, messages=[{"role": role, "content": content}], max_tokens=1)
    first, second = (ids for _, ids, _, _ in bench.engine.submitted)
    assert first == second


async def test_limits_of_new_tokens(client: httpx.AsyncClient, bench: Any) -> None:
    assert (await chat(client, max_completion_tokens=3, max_tokens=5))["usage"]["completion_tokens"] == 3
    bench.engine.context = 30
    assert (await chat(client))["usage"]["total_tokens"] == 30


async def test_the_template_gets_what_clients_send_it(client: httpx.AsyncClient, bench: Any) -> None:
    await chat(client, max_tokens=1, chat_template_kwargs={"enable_thinking": False}, add_generation_prompt=False)
    assert bench.template.variables == {"enable_thinking": False}
    assert bench.engine.submitted[0][1] == list(b"user:hi\n")


async def test_the_last_message_may_be_continued(client: httpx.AsyncClient, bench: Any) -> None:
    messages = [*USER, {"role": "assistant", "content": "well"}]
    await chat(client, messages=messages, max_tokens=1, continue_final_message=True)
    assert bench.engine.submitted[0][1] == list(b"user:hi\nassistant:well")


async def test_token_ids_on_request(client: httpx.AsyncClient) -> None:
    answer = await chat(client, max_tokens=2, return_token_ids=True)
    assert answer["prompt_token_ids"] == list(b"user:hi\nassistant:")
    assert answer["choices"][0]["token_ids"] == list(b"us")
    chunks = await chunks_of(client, max_tokens=2, return_token_ids=True)
    assert [("prompt_token_ids" in chunk) for chunk in chunks] == [True, False, False]
    assert [chunk["choices"][0].get("token_ids") for chunk in chunks] == [None, [117], [115]]
