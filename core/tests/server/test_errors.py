"""Refusals: the right status, OpenAI's error body, the field at fault; and nothing reaches the engine."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx
import pytest

from core.errors import EngineDead

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
USER = [{"role": "user", "content": "hi"}]


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return dict(error)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"[1, 2]",
        b"null",
        b'"text"',
        b'{"prompt": NaN}',
        b'{"prompt": "a", "temperature": Infinity}',
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "\xff"}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "a", "n": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"prompt":' + b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, "/generate", "/abort_request"])
async def test_a_body_that_is_no_json_object(client: httpx.AsyncClient, bench: Any, path: str, body: bytes) -> None:
    error = error_of(await client.post(path, content=body), 400)
    assert error["type"] == "invalid_request_error"
    assert bench.engine.submitted == []


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("prompt", None, "prompt"),
        ("prompt", [], "prompt"),
        ("prompt", "", "prompt"),
        ("prompt", [""], "prompt"),
        ("prompt", [[]], "prompt"),
        ("prompt", [[1], []], "prompt"),
        ("prompt", [1, "a"], "prompt"),
        ("prompt", [True], "prompt"),
        ("prompt", [1.5], "prompt"),
        ("prompt", {"text": "a"}, "prompt"),
        ("prompt", [-1], "prompt"),
        ("prompt", [258], "prompt"),
        ("prompt", [2**70], "prompt"),
        ("prompt", ["ok", [[1]]], "prompt"),
        ("max_tokens", True, "max_tokens"),
        ("max_tokens", "5", "max_tokens"),
        ("max_tokens", 1.5, "max_tokens"),
        ("max_tokens", -1, "max_tokens"),
        ("max_tokens", 2**70, "max_tokens"),
        ("max_tokens", 999, "max_tokens"),
        ("n", 0, "n"),
        ("n", 10**6, "n"),
        ("n", 10**30, "n"),
        ("best_of", 2, "best_of"),
        ("temperature", -0.1, "temperature"),
        ("temperature", 2.1, "temperature"),
        ("temperature", "hot", "temperature"),
        ("temperature", False, "temperature"),
        ("top_p", 1.01, "top_p"),
        ("top_k", -2, "top_k"),
        ("top_k", 2**40, "top_k"),
        ("min_p", 1.1, "min_p"),
        ("repetition_penalty", 0, "repetition_penalty"),
        ("frequency_penalty", 2.5, "frequency_penalty"),
        ("presence_penalty", -2.5, "presence_penalty"),
        ("stop", [""], "stop[0]"),
        ("stop", ["a", 5], "stop[1]"),
        ("stop", 5, "stop"),
        ("stop", ["a"] * 17, "stop"),
        ("stop_token_ids", [-1], "stop_token_ids[0]"),
        ("seed", 2**63, "seed"),
        ("seed", 0.5, "seed"),
        ("logprobs", 6, "logprobs"),
        ("logprobs", -1, "logprobs"),
        ("logprobs", True, "logprobs"),
        ("logit_bias", {"a": 1}, "logit_bias"),
        ("logit_bias", {"-1": 1}, "logit_bias"),
        ("logit_bias", {"5": 101}, "logit_bias[5]"),
        ("logit_bias", {"5": None}, "logit_bias[5]"),
        ("logit_bias", [5], "logit_bias"),
        ("stream", "yes", "stream"),
        ("stream_options", {}, "stream_options"),
        ("suffix", "end", "suffix"),
        ("response_format", {"type": "json_object"}, "response_format"),
        ("guided_regex", "a+", "guided_regex"),
        ("echo", 1, "echo"),
        ("user", 5, "user"),
        ("model", 5, "model"),
    ],
)
async def test_wrong_fields_of_completions(
    client: httpx.AsyncClient, bench: Any, field: str, value: object, param: str
) -> None:
    error = error_of(await client.post(COMPLETIONS, json={"prompt": "hello", field: value}), 400)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert bench.engine.submitted == []
    assert bench.metric('core_requests_total{outcome="invalid"}') == 1


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [*USER, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "5"}]}, "messages"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 2}, "top_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"self": 1}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"add_generation_prompt": False}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": 5}, "chat_template_kwargs"),
        ({"stream": True, "stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    ],
)
async def test_wrong_fields_of_chat(client: httpx.AsyncClient, bench: Any, fields: dict[str, Any], param: str) -> None:
    assert error_of(await client.post(CHAT, json={"messages": USER, **fields}), 400)["param"] == param
    assert bench.engine.submitted == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "text"),
        ({"text": "a", "input_ids": [1]}, "text"),
        ({"text": ""}, "prompt"),
        ({"input_ids": [[]]}, "input_ids"),
        ({"text": "a", "sampling_params": {"temperature": 5}}, "sampling_params.temperature"),
        ({"text": "a", "sampling_params": {"regex": "a"}}, "regex"),
        ({"text": "a", "sampling_params": [1]}, "sampling_params"),
        ({"text": "a", "top_logprobs_num": 21}, "top_logprobs_num"),
        ({"text": "a", "rid": ""}, "rid"),
        ({"text": "a", "rid": "two\r\nlines"}, "rid"),
        ({"text": "a", "rid": "naïve"}, "rid"),
    ],
)
async def test_wrong_fields_of_generate(client: httpx.AsyncClient, body: dict[str, Any], param: str) -> None:
    assert error_of(await client.post("/generate", json=body), 400)["param"] == param


async def test_a_refusal_has_an_id_too(client: httpx.AsyncClient) -> None:
    assert (await client.post(COMPLETIONS, json={})).headers["x-request-id"].startswith("cmpl-")


async def test_a_message_says_what_was_got_and_names_the_field(client: httpx.AsyncClient) -> None:
    error = error_of(await client.post(COMPLETIONS, json={"prompt": "a", "top_p": 7}), 400)
    assert "top_p" in error["message"]
    assert "7" in error["message"]


async def test_fields_that_ask_for_nothing_are_fine(client: httpx.AsyncClient) -> None:
    fields = {"tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "functions": None}
    assert (await client.post(CHAT, json={"messages": USER, "max_tokens": 2, **fields})).status_code == 200


async def test_unknown_fields_are_accepted_and_logged_once(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "core.server")
    for _ in range(3):
        body = {"prompt": "a", "max_tokens": 1, "colour": "blue", "suffix": ""}
        assert (await client.post(COMPLETIONS, json=body)).status_code == 200
    lines = [record.getMessage() for record in caplog.records if "unknown" in record.getMessage()]
    assert len(lines) == 1
    assert "'colour'" in lines[0]


async def test_logged_unknown_fields_are_bounded(client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "core.server")
    body = {"prompt": "a", "max_tokens": 1, **{f"field{number}": 1 for number in range(400)}}
    assert (await client.post(COMPLETIONS, json=body)).status_code == 200
    assert sum("unknown" in record.getMessage() for record in caplog.records) == 256


@pytest.mark.parametrize("name", ["tiny", "org/tiny", None])
async def test_the_model_may_go_by_either_name(client: httpx.AsyncClient, name: str | None) -> None:
    body = {"prompt": "a", "max_tokens": 1, "model": name}
    assert (await client.post(COMPLETIONS, json=body)).json()["model"] == "tiny"


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_another_model_is_not_found(client: httpx.AsyncClient, path: str) -> None:
    body = {"prompt": "a", "messages": USER, "model": "gpt-9"}
    error = error_of(await client.post(path, json=body), 404)
    assert error["code"] == "model_not_found"
    assert error["param"] == "model"
    assert "gpt-9" in error["message"]


async def test_unknown_routes_and_methods(client: httpx.AsyncClient) -> None:
    assert error_of(await client.get("/v1/nothing"), 404)["code"] == "not_found"
    wrong = await client.get(CHAT)
    assert error_of(wrong, 405)["code"] == "method_not_allowed"
    assert wrong.headers["allow"] == "POST"


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit(client: httpx.AsyncClient, declared: bool) -> None:
    body = json.dumps({"prompt": "x" * (1 << 20)}).encode()

    async def in_parts() -> Any:
        for start in range(0, len(body), 65536):
            yield body[start : start + 65536]

    response = await client.post(COMPLETIONS, content=body if declared else in_parts())
    assert error_of(response, 413)["code"] == "request_too_large"


async def test_overload(client: httpx.AsyncClient, bench: Any) -> None:
    bench.engine.max_submitted = 0
    response = await client.post(COMPLETIONS, json={"prompt": "a"})
    assert error_of(response, 503)["code"] == "overloaded"
    assert int(response.headers["retry-after"]) >= 1
    assert bench.metric('core_requests_total{outcome="rejected"}') == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_prompts_are_queued_all_or_none(client: httpx.AsyncClient, bench: Any, stream: bool) -> None:
    response = await client.post(COMPLETIONS, json={"prompt": [[1], [2], [999]], "stream": stream})
    assert error_of(response, 400)["param"] == "prompt"
    assert bench.engine.submitted == []
    bench.engine.max_submitted = 2
    response = await client.post(COMPLETIONS, json={"prompt": [[1], [2], [3]], "stream": stream})
    assert error_of(response, 503)["code"] == "overloaded"
    ids = [request_id for request_id, *_ in bench.engine.submitted]
    assert len(ids) == 2
    assert bench.engine.aborted == ids


async def test_prompt_and_new_tokens_up_to_the_limit(client: httpx.AsyncClient, bench: Any) -> None:
    bench.engine.context = 8
    for max_tokens, status in ((5, 200), (6, 400)):
        body = {"prompt": [1, 2, 3], "max_tokens": max_tokens}
        assert (await client.post(COMPLETIONS, json=body)).status_code == status


async def test_a_base_model_asked_to_chat(client: httpx.AsyncClient, bench: Any) -> None:
    bench.template.present = False
    assert "/v1/completions" in error_of(await client.post(CHAT, json={"messages": USER}), 400)["message"]


async def test_a_dead_engine(client: httpx.AsyncClient, bench: Any) -> None:
    bench.engine.dead.set()
    error = error_of(await client.post(COMPLETIONS, json={"prompt": "a"}), 500)
    assert error["code"] == "engine_dead"
    assert error["type"] == "server_error"


async def test_the_engine_dies_under_a_request(client: httpx.AsyncClient, bench: Any) -> None:
    bench.engine.step = _dies
    assert error_of(await client.post(COMPLETIONS, json={"prompt": "a"}), 500)["code"] == "engine_dead"
    assert bench.metric('core_requests_total{outcome="error"}') == 1


async def _dies() -> None:
    raise EngineDead("out of memory")


async def test_the_engine_gives_a_request_up(client: httpx.AsyncClient, bench: Any) -> None:
    bench.engine.failure = "no room"
    error = error_of(await client.post(COMPLETIONS, json={"prompt": "a"}), 500)
    assert error["code"] == "generation_failed"
    assert "no room" in error["message"]


async def test_an_error_of_our_own_is_told_without_details(client: httpx.AsyncClient, bench: Any) -> None:
    async def broken(text: str, add_special_tokens: bool = True) -> list[int]:
        raise ZeroDivisionError("secret")

    bench.engine.encode_async = broken
    error = error_of(await client.post(COMPLETIONS, json={"prompt": "a"}), 500)
    assert "secret" not in error["message"]
    assert bench.metric("core_open_requests") == 0
