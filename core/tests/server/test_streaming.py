"""On a real port: clients that leave, streams that break, and that nothing of a request stays behind."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from core.errors import EngineDead


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def send_request(url: str, path: str, body: dict[str, Any]) -> socket.socket:
    address = httpx.URL(url)
    connection = socket.create_connection((address.host, address.port), timeout=5)
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {len(content)}\r\n\r\n"
    connection.sendall(head.encode() + content)
    return connection


BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "abc", "max_tokens": 900},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 900},
    "/generate": {"text": "abc", "sampling_params": {"max_new_tokens": 900}},
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_aborts_its_request(live_server: Any, path: str, stream: bool) -> None:
    engine = live_server.bench.engine
    engine.delay = 0.02
    connection = send_request(live_server.url, path, {**BODIES[path], "stream": stream})
    if stream:
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    wait_for(lambda: engine.running == 1)
    connection.close()
    wait_for(lambda: len(engine.aborted) == 1, seconds=1)
    wait_for(lambda: engine.running == 0)
    wait_for(lambda: live_server.bench.metric('core_requests_total{outcome="abort"}') == 1)
    assert live_server.bench.metric("core_open_requests") == 0


def test_all_of_a_requests_prompts_are_aborted(live_server: Any) -> None:
    engine = live_server.bench.engine
    engine.delay = 0.02
    body = {"prompt": ["a", "b", "c"], "n": 2, "max_tokens": 900}
    connection = send_request(live_server.url, "/v1/completions", body)
    wait_for(lambda: engine.running == 3)
    connection.close()
    wait_for(lambda: len(engine.aborted) == 3 and engine.running == 0)


def test_many_clients_that_leave_at_any_time(live_server: Any) -> None:
    engine = live_server.bench.engine
    connections = []
    for number in range(50):
        body = {"prompt": "abc", "max_tokens": 900, "n": 1 + number % 2, "stream": number % 3 == 0}
        connections.append(send_request(live_server.url, "/v1/completions", body))
        time.sleep(0.001 * (number % 4))
    for connection in connections:
        connection.close()
    wait_for(lambda: live_server.bench.service.num_open == 0)
    wait_for(lambda: engine.running == 0)
    assert live_server.bench.metric("core_open_requests") == 0
    assert live_server.bench.metric('core_requests_total{outcome="abort"}') <= 50
    assert httpx.post(f"{live_server.url}/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_a_complete_answer_is_no_abort(live_server: Any) -> None:
    engine = live_server.bench.engine
    for stream in (False, True):
        body = {"prompt": "abc", "max_tokens": 3, "stream": stream}
        assert httpx.post(f"{live_server.url}/v1/completions", json=body).status_code == 200
    wait_for(lambda: live_server.bench.metric('core_requests_total{outcome="length"}') == 2)
    assert engine.aborted == []


def test_a_stream_comes_token_by_token(live_server: Any) -> None:
    live_server.bench.engine.delay = 0.05
    body = {"prompt": "abc", "max_tokens": 4, "stream": True}
    times = []
    with httpx.stream("POST", f"{live_server.url}/v1/completions", json=body) as response:
        times.extend(time.monotonic() for line in response.iter_lines() if line.startswith("data: {"))
    assert len(times) == 4
    assert times[-1] - times[0] > 0.1


@pytest.mark.parametrize("path", BODIES)
def test_an_error_inside_a_stream_is_an_event(live_server: Any, path: str) -> None:
    engine = live_server.bench.engine
    engine.failure, engine.failure_step = "no room", 2
    response = httpx.post(live_server.url + path, json={**BODIES[path], "stream": True})
    assert response.status_code == 200
    *_, last, done, end = response.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    error = json.loads(last.removeprefix("data: "))["error"]
    assert "no room" in error["message"]
    assert error["type"] == "server_error"
    assert live_server.bench.metric('core_requests_total{outcome="error"}') == 1
    assert len(engine.aborted) == 1


def test_an_error_of_our_own_inside_a_stream(live_server: Any) -> None:
    steps = iter(range(100))

    async def step() -> None:
        if next(steps) == 2:
            raise ZeroDivisionError("secret")

    live_server.bench.engine.step = step
    body = {"prompt": ["abc", "d"], "max_tokens": 9, "stream": True}
    text = httpx.post(f"{live_server.url}/v1/completions", json=body).text
    assert "internal_error" in text
    assert "secret" not in text
    wait_for(lambda: live_server.bench.engine.running == 0)


@pytest.mark.parametrize("stream", [False, True])
def test_the_engines_death_ends_open_requests(live_server: Any, stream: bool) -> None:
    bench = live_server.bench
    bench.engine.delay = 0.02

    def die() -> None:
        bench.engine.dead.set()
        bench.service.died("killed")

    connection = send_request(live_server.url, "/v1/completions", {**BODIES["/v1/completions"], "stream": stream})
    wait_for(lambda: bench.engine.running == 1)
    live_server.loop.call_soon_threadsafe(die)
    received = b""
    while b"engine_dead" not in received:
        part = connection.recv(4096)
        assert part, received
        received += part
    connection.close()
    assert received.startswith(b"HTTP/1.1 200" if stream else b"HTTP/1.1 500")
    assert httpx.get(f"{live_server.url}/health").status_code == 503
    assert bench.metric('core_requests_total{outcome="error"}') == 1


def test_an_engine_that_dies_between_submit_and_news(live_server: Any) -> None:
    async def step() -> None:
        raise EngineDead("out of memory")

    live_server.bench.engine.step = step
    body = {"prompt": "a", "stream": True}
    text = httpx.post(f"{live_server.url}/v1/completions", json=body).text
    assert '"code":"engine_dead"' in text
    assert text.endswith("data: [DONE]\n\n")


def test_a_reader_that_does_not_read_slows_nobody(live_server: Any) -> None:
    engine = live_server.bench.engine
    engine.delay, engine.context = 0.0, 10**9
    body = {"prompt": "abc", "max_tokens": 10**6, "stream": True, "logprobs": 5}
    connection = send_request(live_server.url, "/v1/completions", body)
    wait_for(lambda: engine.running == 1)
    time.sleep(0.3)  # the socket's buffers fill
    started = time.monotonic()
    for _ in range(5):
        httpx.post(f"{live_server.url}/v1/completions", json={"prompt": "a", "max_tokens": 5})
    assert time.monotonic() - started < 2
    connection.close()
    wait_for(lambda: engine.running == 0)
