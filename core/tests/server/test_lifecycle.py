"""The server as a process: the port, signals, the engine's death, exit codes."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.errors import ConfigError
from core.server.binding import bind, url_of

SCRIPT = Path(__file__).with_name("run_fake_server.py")


class ServerProcess:
    """One server process; its output is collected while it runs."""

    def __init__(self, **wishes: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), json.dumps(wishes)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            self.lines.extend(output)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_for(self, pattern: str, seconds: float = 15) -> re.Match[str]:
        end = time.monotonic() + seconds
        while (found := re.search(pattern, self.output)) is None:
            assert time.monotonic() < end, self.output
            assert self._reader.is_alive(), self.output
            time.sleep(0.005)
        return found

    @property
    def url(self) -> str:
        return self.wait_for(r"listening on (http://[\d.]+:\d+)")[1]

    def exit_code(self, seconds: float = 10) -> int:
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        return code

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)


@pytest.fixture
def start() -> Iterator[Callable[..., ServerProcess]]:
    started: list[ServerProcess] = []

    def start_one(**wishes: Any) -> ServerProcess:
        started.append(ServerProcess(**wishes))
        return started[-1]

    yield start_one
    for server in started:
        server.end()


def complete(url: str, max_tokens: int, *, stream: bool = False) -> httpx.Response:
    body = {"prompt": "abc", "max_tokens": max_tokens, "stream": stream}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=20)


class Request:
    """A request in a thread of its own."""

    def __init__(self, url: str, max_tokens: int, *, stream: bool = False) -> None:
        self.answer: httpx.Response | None = None
        self._thread = threading.Thread(target=self._run, args=(url, max_tokens, stream))
        self._thread.start()
        for _ in range(1000):
            if "core_open_requests 1.0" in httpx.get(f"{url}/metrics").text:
                return
            time.sleep(0.005)
        pytest.fail("the request did not arrive")

    def _run(self, url: str, max_tokens: int, stream: bool) -> None:
        self.answer = complete(url, max_tokens, stream=stream)

    def wait(self) -> httpx.Response:
        self._thread.join(20)
        assert self.answer is not None
        return self.answer


def port_is_free(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", httpx.URL(url).port or 0)) != 0


def test_it_listens_before_it_loads_and_says_when_it_is_ready(start: Callable[..., ServerProcess]) -> None:
    server = start(load_seconds=1.5)
    assert httpx.get(f"{server.url}/health").json() == {"status": "loading"}
    assert httpx.get(f"{server.url}/ready").status_code == 503
    assert complete(server.url, 1).status_code == 503
    server.wait_for(rf"ready after \d\.\d s on {server.url}: tiny\s+attention  fake  chosen")
    assert httpx.get(f"{server.url}/ready").status_code == 200
    assert complete(server.url, 3).json()["choices"][0]["text"] == "abc"
    assert "heavy modules: []" in server.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(start: Callable[..., ServerProcess], number: signal.Signals) -> None:
    server = start(delay=0.02)
    server.wait_for("ready after")
    request = Request(server.url, 60)
    server.process.send_signal(number)
    server.wait_for("no new requests")
    refused = complete(server.url, 1)
    assert refused.status_code == 503
    assert "retry-after" in refused.headers
    assert httpx.get(f"{server.url}/ready").status_code == 503
    assert httpx.get(f"{server.url}/health").status_code == 200
    answer = request.wait()
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 60
    assert server.exit_code() == 0
    assert "engine closed" in server.output
    assert "Traceback" not in server.output
    assert port_is_free(server.url)


@pytest.mark.parametrize("stream", [False, True])
def test_a_drain_has_an_end(start: Callable[..., ServerProcess], stream: bool) -> None:
    server = start(delay=0.02, drain_timeout=0.3)
    server.wait_for("ready after")
    request = Request(server.url, 900, stream=stream)
    server.process.send_signal(signal.SIGTERM)
    answer = request.wait()
    assert answer.status_code == (200 if stream else 503)
    assert "did not end in time" in answer.text
    assert server.exit_code() == 0


def test_a_second_signal_ends_at_once(start: Callable[..., ServerProcess]) -> None:
    server = start(delay=0.02, drain_timeout=60)
    server.wait_for("ready after")
    connection = socket.create_connection(("127.0.0.1", httpx.URL(server.url).port or 0))
    body = json.dumps({"prompt": "abc", "max_tokens": 900}).encode()
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    while "core_open_requests 1.0" not in httpx.get(f"{server.url}/metrics").text:
        time.sleep(0.005)
    server.process.send_signal(signal.SIGTERM)
    server.wait_for("no new requests")
    time.sleep(0.2)
    server.process.send_signal(signal.SIGTERM)
    assert server.exit_code(2) == 128 + signal.SIGTERM
    connection.close()


def test_two_signals_at_once_are_one(start: Callable[..., ServerProcess]) -> None:
    server = start(delay=0.02)
    server.wait_for("ready after")
    request = Request(server.url, 30)
    server.process.send_signal(signal.SIGTERM)
    server.process.send_signal(signal.SIGINT)
    assert request.wait().status_code == 200
    assert server.exit_code() == 0


def test_a_signal_while_loading(start: Callable[..., ServerProcess]) -> None:
    server = start(load_seconds=60)
    assert httpx.get(f"{server.url}/health").status_code == 200
    server.process.send_signal(signal.SIGTERM)
    assert server.exit_code(3) == 0
    assert "load cancelled" in server.output
    assert port_is_free(server.url)


def test_a_model_that_cannot_be_loaded(start: Callable[..., ServerProcess]) -> None:
    server = start(fails=True)
    assert server.exit_code() == 1
    assert "config.json is missing" in server.output
    assert "Traceback" not in server.output


@pytest.mark.parametrize("stream", [False, True])
def test_the_engines_death_ends_everything(start: Callable[..., ServerProcess], stream: bool) -> None:
    server = start(delay=0.02, die_after=2)
    server.wait_for("ready after")
    answer = Request(server.url, 900, stream=stream).wait()
    assert answer.status_code == (200 if stream else 500)
    assert "engine_dead" in answer.text
    assert server.exit_code() == 1
    assert "The engine stopped: killed by a test" in server.output
    assert "Traceback" not in server.output
    assert port_is_free(server.url)


def test_a_taken_port_is_told_before_anything_is_loaded(start: Callable[..., ServerProcess]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = start(port=port)
        assert server.exit_code() == 2
    assert f"port {port}" in server.output
    assert "--port" in server.output
    assert "Traceback" not in server.output
    assert "heavy modules" not in server.output


def test_bind_holds_the_port_at_once() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=str(port)):
            bind("127.0.0.1", port)
        assert url_of(listener) == f"http://127.0.0.1:{port}"
    bind("127.0.0.1", port).close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_bind_to_an_address_of_another_machine(host: str) -> None:
    with pytest.raises(ConfigError, match=host):
        bind(host, 0)
