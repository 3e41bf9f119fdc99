"""The routes that operate a server, its phases, and its figures."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import httpx
import pytest

from core.server.app import build_app
from core.server.service import Service

pytestmark = pytest.mark.anyio

PROMPT = {"prompt": "abc", "max_tokens": 3}


async def test_models(client: httpx.AsyncClient, bench: Any) -> None:
    listed = (await client.get("/v1/models")).json()
    assert listed["object"] == "list"
    (card,) = listed["data"]
    assert card == {
        "id": "tiny",
        "object": "model",
        "created": bench.service.created,
        "owned_by": "core",
        "root": "org/tiny",
        "max_model_len": 1000,
    }
    for name in ("tiny", "org/tiny"):
        assert (await client.get(f"/v1/models/{name}")).json() == card
    missing = await client.get("/v1/models/other")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


async def test_while_loading() -> None:
    transport = httpx.ASGITransport(build_app(Service("m")))
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        health, ready = await client.get("/health"), await client.get("/ready")
        assert (health.status_code, health.json()) == (200, {"status": "loading"})
        assert (ready.status_code, ready.json()) == (503, {"status": "loading"})
        refused = await client.post("/v1/completions", json=PROMPT)
        assert refused.status_code == 503
        assert "loading" in refused.json()["error"]["message"]
        assert "retry-after" in refused.headers
        assert (await client.get("/v1/models")).json()["data"][0]["max_model_len"] is None
        assert (await client.get("/server_info")).json()["status"] == "loading"
        assert (await client.post("/flush_cache")).status_code == 503
        assert "core_open_requests 0.0" in (await client.get("/metrics")).text


async def test_ready_then_draining_then_dead(client: httpx.AsyncClient, bench: Any) -> None:
    async def statuses() -> list[int]:
        generation = await client.post("/v1/completions", json=PROMPT)
        return [(await client.get(path)).status_code for path in ("/health", "/ready")] + [generation.status_code]

    assert await statuses() == [200, 200, 200]
    bench.service.drain()
    assert await statuses() == [200, 503, 503]
    bench.service.died("killed")
    assert await statuses() == [503, 503, 500]


async def test_server_info(client: httpx.AsyncClient) -> None:
    info = (await client.get("/server_info")).json()
    assert info["status"] == "ready"
    assert info["model"] == "org/tiny"
    assert info["served_model_name"] == "tiny"
    assert info["limits"]["max_context_len"] == 1000
    assert info["stats"]["num_pages"] == 64
    assert info["selection"] == {"attention": "fake"}
    assert info["version"]


async def test_flush_cache(client: httpx.AsyncClient) -> None:
    for method in ("GET", "POST"):
        assert (await client.request(method, "/flush_cache")).json() == {"freed_pages": 8}


@pytest.mark.parametrize("body", [{}, {"rid": "a", "abort_all": True}, {"rid": 5}, {"abort_all": "yes"}])
async def test_abort_requests_that_make_no_sense(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    assert (await client.post("/abort_request", json=body)).status_code == 400


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("everything", [False, True])
async def test_abort_request(client: httpx.AsyncClient, bench: Any, stream: bool, everything: bool) -> None:
    bench.engine.delay = 0.005
    body = {"text": "ab", "rid": "mine", "stream": stream, "sampling_params": {"max_new_tokens": 900}}
    running = asyncio.create_task(client.post("/generate", json=body))
    while not bench.engine.running:
        await asyncio.sleep(0.001)
    duplicate = await client.post("/generate", json=body)
    assert duplicate.status_code == 400
    assert duplicate.json()["error"]["param"] == "rid"
    wish = {"abort_all": True} if everything else {"rid": "mine"}
    assert (await client.post("/abort_request", json=wish)).json() == {"aborted": 1}
    answer = await asyncio.wait_for(running, 5)
    assert answer.status_code == 200
    assert '"finish_reason":{"type":"abort"}' in answer.text
    assert bench.engine.aborted == ["mine"]
    assert bench.metric('core_requests_total{outcome="abort"}') == 1
    assert (await client.post("/abort_request", json={"rid": "mine"})).json() == {"aborted": 0}


async def test_metrics_count_each_request_once(client: httpx.AsyncClient, bench: Any) -> None:
    await client.post("/v1/completions", json={**PROMPT, "n": 2})
    await client.post("/v1/completions", json={**PROMPT, "stream": True, "prompt": ["a", "b"]})
    await client.post("/v1/completions", json={})
    assert bench.metric('core_requests_total{outcome="length"}') == 2
    assert bench.metric('core_requests_total{outcome="invalid"}') == 1
    assert bench.metric('core_requests_total{outcome="stop"}') == 0
    assert bench.metric("core_open_requests") == 0
    assert bench.metric("core_time_to_first_token_seconds_count") == 2
    assert bench.metric("core_request_latency_seconds_count") == 2
    assert bench.metric("core_inter_token_latency_seconds_count") == 2 * 2 + 2 * 2


async def test_the_engines_figures(client: httpx.AsyncClient) -> None:
    await client.post("/v1/completions", json=PROMPT)
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = response.text.splitlines()
    for line in (
        "core_running_requests 0.0",
        "core_waiting_requests 0.0",
        'core_pool_pages{use="free"} 40.0',
        "core_pool_used_ratio 0.25",
        "core_cache_hit_ratio 0.5",
        "core_prompt_tokens_total 4.0",
        "core_cached_tokens_total 2.0",
        "core_output_tokens_total 7.0",
    ):
        assert line in lines


async def test_one_log_line_a_request(client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "core.server.request")
    answer = await client.post("/v1/completions", json=PROMPT)
    await client.post("/v1/completions", json={"prompt": 5})
    first, second = (record.getMessage() for record in caplog.records if record.name == "core.server.request")
    assert re.fullmatch(
        rf"/v1/completions {answer.json()['id']} finish=length prompt_tokens=4 cached_tokens=2 completion_tokens=3 "
        r"first_token=\d\.\d{3}s total=\d\.\d{3}s",
        first,
    )
    assert "finish=invalid" in second
    assert "prompt: expected" in second
    assert answer.headers["x-request-id"] == answer.json()["id"]
