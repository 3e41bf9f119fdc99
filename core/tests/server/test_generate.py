"""The native `/generate`."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

PATH = "/generate"


async def generate(client: httpx.AsyncClient, **fields: Any) -> Any:
    response = await client.post(PATH, json=fields)
    assert response.status_code == 200, response.text
    return response.json()


async def test_one_prompt_gives_one_object(client: httpx.AsyncClient) -> None:
    answer = await generate(client, text="ab", sampling_params={"max_new_tokens": 3})
    assert answer["text"] == "aba"
    assert answer["output_ids"] == [97, 98, 97]
    meta = answer["meta_info"]
    assert meta.pop("e2e_latency") > 0
    assert meta.pop("id").startswith("gen-")
    assert meta == {
        "finish_reason": {"type": "length", "length": 3},
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "cached_tokens": 1,
    }


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"text": ["ab"]}, ["ab"]),
        ({"text": ["ab", "c"]}, ["ab", "cc"]),
        ({"input_ids": [[97], [98]]}, ["aa", "bb"]),
        ({"text": "ab", "sampling_params": {"max_new_tokens": 2, "n": 2}}, ["ab", "ab"]),
    ],
)
async def test_lists_give_lists(client: httpx.AsyncClient, fields: dict[str, Any], texts: list[str]) -> None:
    answers = await generate(client, **{"sampling_params": {"max_new_tokens": 2}, **fields})
    assert [answer["text"] for answer in answers] == texts
    assert [answer["index"] for answer in answers] == list(range(len(texts)))


async def test_ids_are_taken_as_they_are(client: httpx.AsyncClient, bench: Any) -> None:
    assert (await generate(client, input_ids=[97, 98], sampling_params=None))["meta_info"]["completion_tokens"] == 128
    assert bench.engine.submitted[0][1] == [97, 98]


async def test_each_event_holds_all_so_far(client: httpx.AsyncClient) -> None:
    response = await client.post(PATH, json={"text": "abc", "stream": True, "sampling_params": {"max_new_tokens": 3}})
    *events, done, end = response.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    answers = [json.loads(event.removeprefix("data: ")) for event in events]
    assert [answer["text"] for answer in answers] == ["a", "ab", "abc"]
    assert [answer["output_ids"] for answer in answers] == [[97], [97, 98], [97, 98, 99]]
    reasons = [answer["meta_info"]["finish_reason"] for answer in answers]
    assert reasons == [None, None, {"type": "length", "length": 3}]


async def test_logprobs(client: httpx.AsyncClient) -> None:
    fields = {"return_logprob": True, "top_logprobs_num": 1, "logprob_start_len": 0}
    meta = (await generate(client, text="x", sampling_params={"max_new_tokens": 1}, **fields))["meta_info"]
    assert meta["input_token_logprobs"] == [[None, 256, "<s>"], [-1.2, 120, "x"]]
    assert meta["output_token_logprobs"] == [[-1.2, 120, "x"]]
    assert meta["output_top_logprobs"] == [[[-0.97, 97, "a"]]]
    meta = (await generate(client, text="x", sampling_params={"max_new_tokens": 1}))["meta_info"]
    assert not any("logprobs" in name for name in meta)


async def test_every_field_reaches_the_engine(client: httpx.AsyncClient, bench: Any) -> None:
    sampling = {
        "max_new_tokens": 5,
        "min_new_tokens": 2,
        "temperature": 0.5,
        "top_k": -1,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.3,
        "stop": ["end"],
        "stop_token_ids": [9],
        "ignore_eos": True,
        "logit_bias": {"65": 1},
        "sampling_seed": 7,
        "skip_special_tokens": False,
        "no_stop_trim": True,
    }
    await generate(client, text="ab", sampling_params=sampling)
    params = bench.engine.submitted[0][2]
    assert (params.max_tokens, params.min_tokens) == (5, 2)
    assert (params.temperature, params.top_k, params.top_p, params.min_p) == (0.5, -1, 0.9, 0.1)
    assert (params.repetition_penalty, params.frequency_penalty, params.presence_penalty) == (1.1, 0.2, 0.3)
    assert (params.stop, params.stop_token_ids, params.ignore_eos) == (("end",), (9,), True)
    assert (params.logit_bias, params.seed) == ({65: 1.0}, 7)
    assert (params.skip_special_tokens, params.include_stop) == (False, True)
    assert (params.logprobs, params.prompt_logprobs) == (None, None)


async def test_the_client_may_choose_the_id(client: httpx.AsyncClient, bench: Any) -> None:
    answer = await generate(client, text="a", rid="mine", sampling_params={"max_new_tokens": 1})
    assert answer["meta_info"]["id"] == "mine"
    assert bench.engine.submitted[0][0] == "mine"
    assert bench.service.num_open == 0
