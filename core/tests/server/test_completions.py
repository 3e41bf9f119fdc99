"""`/v1/completions`: shapes of the whole answer and of the stream."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

PATH = "/v1/completions"


async def complete(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post(PATH, json=fields)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def chunks_of(client: httpx.AsyncClient, path: str = PATH, **fields: Any) -> list[dict[str, Any]]:
    response = await client.post(path, json={"stream": True, **fields})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.split("\n\n")
    assert events[-1] == ""
    assert events[-2] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


async def test_the_whole_answer(client: httpx.AsyncClient) -> None:
    answer = await complete(client, prompt="abc", max_tokens=4)
    assert answer["id"].startswith("cmpl-")
    assert answer["object"] == "text_completion"
    assert isinstance(answer["created"], int)
    assert answer["choices"] == [
        {"index": 0, "text": "abca", "logprobs": None, "finish_reason": "length", "stop_reason": None}
    ]
    assert answer["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 4,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


async def test_openais_default_of_16_tokens(client: httpx.AsyncClient) -> None:
    assert (await complete(client, prompt="a"))["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("ab", ["abab"]),
        (["ab"], ["abab"]),
        (["ab", "c"], ["abab", "cccc"]),
        ([97, 98], ["abab"]),
        ([[97, 98], [99]], ["abab", "cccc"]),
        (["ab", [99]], ["abab", "cccc"]),
    ],
)
async def test_every_form_of_prompt(client: httpx.AsyncClient, prompt: Any, texts: list[str]) -> None:
    answer = await complete(client, prompt=prompt, max_tokens=4)
    assert [choice["text"] for choice in answer["choices"]] == texts
    streamed = ["" for _ in texts]
    for chunk in await chunks_of(client, prompt=prompt, max_tokens=4):
        for choice in chunk["choices"]:
            streamed[choice["index"]] += choice["text"]
    assert streamed == texts


async def test_n_choices_of_each_prompt_in_order(client: httpx.AsyncClient) -> None:
    answer = await complete(client, prompt=["a", "b"], n=2, max_tokens=2)
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [
        (0, "aa"),
        (1, "aa"),
        (2, "bb"),
        (3, "bb"),
    ]
    assert answer["usage"]["prompt_tokens"] == 4
    assert answer["usage"]["completion_tokens"] == 8


async def test_one_finish_reason_for_each_choice(client: httpx.AsyncClient) -> None:
    chunks = await chunks_of(client, prompt=["ab", "c"], n=2, max_tokens=3)
    assert len({chunk["id"] for chunk in chunks}) == 1
    for index in range(4):
        reasons = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert reasons == [None, None, "length"]


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": True}])
async def test_usage_in_streams(client: httpx.AsyncClient, options: dict[str, Any] | None) -> None:
    chunks = await chunks_of(client, prompt="ab", max_tokens=3, stream_options=options)
    if options and options["include_usage"]:
        assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 3
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["total_tokens"] == 6
    else:
        assert len(chunks) == 3
        assert not any("usage" in chunk for chunk in chunks)


async def test_characters_are_never_split(client: httpx.AsyncClient) -> None:
    chunks = await chunks_of(client, prompt="€ä", max_tokens=5)
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["€", "ä"]


async def test_logprobs(client: httpx.AsyncClient) -> None:
    answer = await complete(client, prompt="xy", max_tokens=3, logprobs=2)
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["x", "y", "x"],
        "token_logprobs": [-1.2, -1.21, -1.2],
        "top_logprobs": [
            {"a": -0.97, "b": -0.98, "x": -1.2},
            {"a": -0.97, "b": -0.98, "y": -1.21},
            {"a": -0.97, "b": -0.98, "x": -1.2},
        ],
        "text_offset": [2, 3, 4],
    }


async def test_zero_logprobs_still_tells_the_chosen_tokens(client: httpx.AsyncClient) -> None:
    logprobs = (await complete(client, prompt="ab", max_tokens=2, logprobs=0))["choices"][0]["logprobs"]
    assert logprobs["token_logprobs"] == [-0.97, -0.98]
    assert logprobs["top_logprobs"] == [{"a": -0.97}, {"b": -0.98}]


async def test_logprobs_of_parts_of_characters(client: httpx.AsyncClient) -> None:
    logprobs = (await complete(client, prompt="€a", max_tokens=4, logprobs=0))["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "a"]
    assert logprobs["text_offset"] == [2, 2, 2, 3]


async def test_a_stream_has_the_same_logprobs(client: httpx.AsyncClient) -> None:
    whole = (await complete(client, prompt="a€b", max_tokens=7, logprobs=3, echo=True))["choices"][0]
    parts = [
        chunk["choices"][0] for chunk in await chunks_of(client, prompt="a€b", max_tokens=7, logprobs=3, echo=True)
    ]
    assert "".join(part["text"] for part in parts) == whole["text"]
    for name, values in whole["logprobs"].items():
        assert [value for part in parts for value in part["logprobs"][name]] == values


async def test_echo(client: httpx.AsyncClient) -> None:
    assert (await complete(client, prompt="abc", max_tokens=2, echo=True))["choices"][0]["text"] == "abcab"
    chunks = await chunks_of(client, prompt="abc", max_tokens=2, echo=True, n=2)
    assert [(c["choices"][0]["index"], c["choices"][0]["text"]) for c in chunks] == [
        (0, "abca"),
        (1, "abca"),
        (0, "b"),
        (1, "b"),
    ]


async def test_echo_with_logprobs(client: httpx.AsyncClient) -> None:
    choice = (await complete(client, prompt="xy", max_tokens=1, echo=True, logprobs=1))["choices"][0]
    assert choice["text"] == "xyx"
    assert choice["logprobs"] == {
        "tokens": ["<s>", "x", "y", "x"],
        "token_logprobs": [None, -1.2, -1.21, -1.2],
        "top_logprobs": [None, {"a": -0.97, "x": -1.2}, {"a": -0.97, "y": -1.21}, {"a": -0.97, "x": -1.2}],
        "text_offset": [0, 0, 1, 2],
    }


async def test_echo_of_ids_shows_special_tokens(client: httpx.AsyncClient) -> None:
    choice = (await complete(client, prompt=[256, 97], max_tokens=1, echo=True, logprobs=0))["choices"][0]
    assert choice["text"] == "<s>aa"
    assert choice["logprobs"]["text_offset"] == [0, 3, 4]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("logprobs", [None, 0, 2])
async def test_the_echoed_prompt_alone(client: httpx.AsyncClient, stream: bool, logprobs: int | None) -> None:
    fields = {"prompt": "xyz", "max_tokens": 0, "echo": True, "logprobs": logprobs}
    if stream:
        chunks = await chunks_of(client, stream_options={"include_usage": True}, **fields)
        answer = chunks[0] | {"usage": chunks[-1]["usage"]}
        assert len(chunks) == 2
    else:
        answer = await complete(client, **fields)
    choice = answer["choices"][0]
    assert choice["text"] == "xyz"
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    if logprobs is None:
        assert choice["logprobs"] is None
    else:
        assert choice["logprobs"]["tokens"] == ["<s>", "x", "y", "z"]
        assert choice["logprobs"]["text_offset"] == [0, 0, 1, 2]


async def test_no_token_at_all(client: httpx.AsyncClient, bench: Any) -> None:
    bench.engine.context = 4  # the prompt alone fills it
    answer = await complete(client, prompt="xyz", max_tokens=0)
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == ("", "length")
    assert bench.metric("core_time_to_first_token_seconds_count") == 0


async def test_the_end_of_text_and_its_token(client: httpx.AsyncClient, bench: Any) -> None:
    bench.engine.script = [104, 105, 257]
    answer = await complete(client, prompt="a", max_tokens=9, logprobs=0)
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("hi", "stop")
    assert choice["logprobs"]["tokens"] == ["h", "i", "</s>"]
    assert answer["usage"]["completion_tokens"] == 3
    assert bench.metric('core_requests_total{outcome="stop"}') == 1


async def test_token_ids_on_request(client: httpx.AsyncClient) -> None:
    choice = (await complete(client, prompt="ab", max_tokens=3, return_token_ids=True))["choices"][0]
    assert choice["prompt_token_ids"] == [256, 97, 98]
    assert choice["token_ids"] == [97, 98, 97]
    chunks = await chunks_of(client, prompt="€", max_tokens=3, return_token_ids=True)
    assert [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]] == list("€".encode())
    assert [("prompt_token_ids" in chunk["choices"][0]) for chunk in chunks] == [True, False, False]


async def test_every_field_reaches_the_engine(client: httpx.AsyncClient, bench: Any) -> None:
    await complete(
        client,
        prompt="ab",
        max_tokens=5,
        min_tokens=2,
        temperature=0.5,
        top_k=7,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.1,
        frequency_penalty=0.2,
        presence_penalty=0.3,
        stop="end",
        stop_token_ids=[9],
        ignore_eos=True,
        logit_bias={"65": -100, "66": 2.5},
        seed=-3,
        n=2,
        best_of=2,
        logprobs=1,
        echo=True,
        skip_special_tokens=False,
        include_stop_str_in_output=True,
        cache_salt="tenant",
    )
    _, ids, params, extra_key = bench.engine.submitted[0]
    assert ids == [256, 97, 98]
    assert extra_key == "tenant"
    assert (params.max_tokens, params.min_tokens) == (5, 2)
    assert (params.temperature, params.top_k, params.top_p, params.min_p) == (0.5, 7, 0.9, 0.1)
    assert (params.repetition_penalty, params.frequency_penalty, params.presence_penalty) == (1.1, 0.2, 0.3)
    assert (params.stop, params.stop_token_ids, params.ignore_eos) == (("end",), (9,), True)
    assert params.logit_bias == {65: -100, 66: 2.5}
    assert (params.seed, params.n, params.logprobs, params.prompt_logprobs) == (-3, 2, 1, 1)
    assert (params.skip_special_tokens, params.include_stop) == (False, True)


async def test_the_models_defaults_lie_below_the_requests_values(client: httpx.AsyncClient, bench: Any) -> None:
    from core.server.schema.sampling import SamplingDefaults
    from core.server.service import Serving

    generation_config = {"temperature": 0.6, "top_k": 20, "top_p": None, "eos_token_id": [1, 2]}
    bench.service.loaded(Serving(bench.engine, bench.template, defaults=SamplingDefaults.of_model(generation_config)))
    await complete(client, prompt="a", max_tokens=1)
    await complete(client, prompt="a", max_tokens=1, temperature=0, top_k=0)
    first, second = (params for _, _, params, _ in bench.engine.submitted)
    assert (first.temperature, first.top_k, first.top_p) == (0.6, 20, 1.0)
    assert (second.temperature, second.top_k) == (0, 0)
