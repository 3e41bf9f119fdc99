"""`python -m core` as a process, with a real engine: answers, signals, deaths, the port."""

from __future__ import annotations

import os
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
import openai
import psutil
import pytest
import torch
from reference import check
from tiny_model import save_tiny_model, tokenizer

START_SECONDS = 60
LONG = {"prompt": "once", "max_tokens": 600, "ignore_eos": True, "temperature": 0}


class ServeProcess:
    """One server process; its log is collected while it runs."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "core", "--port", "0", *arguments]
        # A model this small gains nothing from threads, and on a busy machine they wait for each other.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            self._lines.extend(output)

    @property
    def log(self) -> str:
        return "".join(self._lines)

    def wait_for(self, pattern: str) -> str:
        end = time.monotonic() + START_SECONDS
        while (found := re.search(pattern, self.log)) is None:
            assert time.monotonic() < end, self.log
            assert self._reader.is_alive(), self.log
            time.sleep(0.01)
        return found[1] if found.groups() else found[0]

    @property
    def url(self) -> str:
        return self.wait_for(r"listening on (http://[\d.]+:\d+)")

    def engine(self) -> psutil.Process:
        """The engine's process."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        (engine,) = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        return engine

    def exit_code(self) -> int:
        code = self.process.wait(30)
        self._reader.join(30)
        return code

    def end(self) -> None:
        self.process.kill()
        self.exit_code()

    def port_is_free(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", httpx.URL(self.url).port or 0)) != 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return save_tiny_model(folder)


@pytest.fixture
def start(folder: Path, model: Any) -> Iterator[Callable[..., ServeProcess]]:
    started: list[ServeProcess] = []

    def start_one(*arguments: str) -> ServeProcess:
        started.append(ServeProcess("--model", str(folder), "--max-total-tokens", "4096", *arguments))
        return started[-1]

    yield start_one
    for server in started:
        server.end()


@pytest.fixture(scope="module")
def served(folder: Path, model: Any) -> Iterator[str]:
    """The URL of a server that runs for the whole module, and is at last asked to stop."""
    server = ServeProcess("--model", str(folder), "--served-model-name", "tiny", "--max-total-tokens", "4096")
    try:
        server.wait_for("ready after")
        engine = server.engine()
        yield server.url
        assert httpx.get(f"{server.url}/health").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.exit_code() == 0, server.log
        assert not engine.is_running()
        assert "Traceback" not in server.log
    finally:
        server.end()


@pytest.fixture
def api(served: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_greedy_tokens_equal_transformers(served: str, model: Any) -> None:
    body = {"prompt": ["hello", "naïve €", [5, 6, 7]], "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    answer = httpx.post(f"{served}/v1/completions", json={**body, "return_token_ids": True}).json()
    for choice in answer["choices"]:
        check(model, choice["prompt_token_ids"], choice["token_ids"])
        assert choice["text"] == tokenizer().decode(choice["token_ids"], skip_special_tokens=True)
    assert answer["usage"]["completion_tokens"] == 3 * 40


def test_logprobs_equal_transformers(served: str, model: Any) -> None:
    body = {"prompt": "hello", "max_tokens": 8, "temperature": 0, "ignore_eos": True, "logprobs": 3, "echo": True}
    choice = httpx.post(f"{served}/v1/completions", json={**body, "return_token_ids": True}).json()["choices"][0]
    ids = choice["prompt_token_ids"] + choice["token_ids"]
    with torch.inference_mode():
        expected = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0, :-1].double(), dim=-1)
    wanted = expected[range(len(ids) - 1), ids[1:]].tolist()
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(wanted, abs=1e-3)
    assert choice["text"].startswith("hello")
    best = expected.max(dim=-1).values.tolist()
    assert [max(top.values()) for top in choice["logprobs"]["top_logprobs"][1:]] == pytest.approx(best, abs=1e-3)


def test_the_echoed_prompt_alone(api: openai.OpenAI) -> None:
    answer = api.completions.create(model="tiny", prompt="hello", max_tokens=0, echo=True, logprobs=0)
    assert answer.choices[0].text == "hello"
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.text_offset == [0, 1, 2, 3, 4]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 0


def test_chat_whole_and_streamed(api: openai.OpenAI, served: str) -> None:
    messages: Any = [{"role": "user", "content": "hi"}]
    more = {"ignore_eos": True, "return_token_ids": True}
    whole = api.chat.completions.create(model="tiny", messages=messages, max_tokens=30, temperature=0, extra_body=more)
    assert whole.model_extra is not None
    assert whole.model_extra["prompt_token_ids"] == tokenizer().encode("<s>user\nhi</s>\n<s>assistant\n")
    stream = api.chat.completions.create(
        model="tiny",
        messages=messages,
        max_tokens=30,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=more,
    )
    *chunks, last = stream
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["length"]
    assert last.usage is not None
    assert last.usage.completion_tokens == 30


def test_seeded_choices_are_the_same_again(api: openai.OpenAI) -> None:
    texts = [
        [choice.text for choice in api.completions.create(model="tiny", prompt="a", seed=7, n=3).choices]
        for _ in range(2)
    ]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) > 1


def test_a_stop_string(api: openai.OpenAI) -> None:
    plain = api.completions.create(model="tiny", prompt="abc", temperature=0, max_tokens=60).choices[0].text
    stop = plain[10:13]
    answer = api.completions.create(model="tiny", prompt="abc", temperature=0, max_tokens=60, stop=stop).choices[0]
    assert answer.text == plain[: plain.index(stop)]
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": [258]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": "a", "max_tokens": 2048}, "max_tokens"),
        ({"prompt": [5] * 5000}, "prompt"),
        ({"prompt": "a", "logit_bias": {"258": 1}}, "logit_bias"),
        ({"prompt": "a", "stop_token_ids": [258]}, "stop_token_ids"),
    ],
)
def test_what_the_engine_could_never_do_is_refused(served: str, body: dict[str, Any], param: str) -> None:
    answer = httpx.post(f"{served}/v1/completions", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


def test_prompt_and_new_tokens_exactly_at_the_limit(served: str) -> None:
    body = {"prompt": [5] * 2040, "max_tokens": 8, "ignore_eos": True}
    assert httpx.post(f"{served}/v1/completions", json=body).json()["usage"]["total_tokens"] == 2048
    assert httpx.post(f"{served}/v1/completions", json={**body, "max_tokens": 9}).status_code == 400


def test_a_cache_salt_keeps_tenants_apart(served: str) -> None:
    def cached(salt: str) -> int:
        body = {"prompt": "x" * 100, "max_tokens": 1, "cache_salt": salt}
        usage = httpx.post(f"{served}/v1/completions", json=body).json()["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    assert [cached("a"), cached("b"), cached("a")] == [0, 0, 96]


def test_disconnects_leave_no_page_held(served: str) -> None:
    address = httpx.URL(served)
    for number in range(20):
        stream = b"true" if number % 2 else b"false"
        body = b'{"prompt": "once upon a time", "max_tokens": 1500, "n": 2, "ignore_eos": true, "stream": %s}' % stream
        with socket.create_connection((address.host, address.port or 0)) as connection:
            connection.sendall(
                b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
            time.sleep(0.01 * (number % 4))
    end = time.monotonic() + 5
    while True:
        info = httpx.get(f"{served}/server_info").json()
        idle = not (info["open_requests"] or info["stats"]["num_running"] or info["stats"]["num_waiting"])
        if idle and info["stats"]["num_held_pages"] == 0:
            break
        assert time.monotonic() < end, info
        time.sleep(0.02)
    stats = info["stats"]
    assert stats["num_free_pages"] + stats["num_cached_pages"] == stats["num_pages"]


def test_info_and_metrics(served: str) -> None:
    info = httpx.get(f"{served}/server_info").json()
    assert info["selection"]["chosen"]["decode_attention"]["distribution"] == "plugin-attention-torch"
    assert "plugin-attention-torch" in info["selection_table"]
    assert info["config"]["cache"]["max_total_tokens"] == 4096
    assert info["limits"]["max_context_len"] == 2048
    httpx.post(f"{served}/v1/completions", json={"prompt": "a", "max_tokens": 3})
    text = httpx.get(f"{served}/metrics").text
    (drawn,) = re.findall(r"^core_output_tokens_total ([\d.e+]+)$", text, re.MULTILINE)
    assert float(drawn) > 0
    assert httpx.post(f"{served}/flush_cache").json()["freed_pages"] > 0


def test_native_generate(served: str) -> None:
    sampling = {"max_new_tokens": 5, "temperature": 0, "ignore_eos": True}
    by_text = httpx.post(f"{served}/generate", json={"text": "abc", "sampling_params": sampling}).json()
    ids = tokenizer().encode("abc")
    by_ids = httpx.post(f"{served}/generate", json={"input_ids": ids, "sampling_params": sampling}).json()
    assert by_text["output_ids"] == by_ids["output_ids"]
    assert by_text["meta_info"]["finish_reason"] == {"type": "length", "length": 5}


def test_a_drain_lets_open_requests_end(start: Callable[..., ServeProcess]) -> None:
    server = start()
    server.wait_for("ready after")
    with httpx.stream("POST", f"{server.url}/v1/completions", json={**LONG, "stream": True}, timeout=60) as response:
        lines = response.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("no new requests")
        assert httpx.post(f"{server.url}/v1/completions", json=LONG).status_code == 503
        rest = "\n".join(lines)
    assert '"finish_reason":"length"' in rest
    assert rest.rstrip().endswith("data: [DONE]")
    assert server.exit_code() == 0
    assert server.port_is_free()


def test_a_killed_engine_ends_the_server(start: Callable[..., ServeProcess]) -> None:
    server = start()
    server.wait_for("ready after")
    with httpx.stream("POST", f"{server.url}/v1/completions", json={**LONG, "stream": True}, timeout=60) as response:
        lines = response.iter_lines()
        next(lines)
        server.engine().kill()
        rest = "\n".join(lines)
    assert '"code":"engine_dead"' in rest
    assert server.exit_code() == 1
    assert "SIGKILL" in server.log
    assert server.port_is_free()


def test_a_killed_server_leaves_no_engine(start: Callable[..., ServeProcess]) -> None:
    server = start()
    server.wait_for("ready after")
    engine = server.engine()
    server.process.kill()
    engine.wait(10)
    assert server.port_is_free()


def test_a_signal_while_loading(start: Callable[..., ServeProcess]) -> None:
    server = start()
    assert httpx.get(f"{server.url}/ready").status_code == 503
    started = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.exit_code() == 0
    assert time.monotonic() - started < 10
    assert "ready after" not in server.log


def test_a_port_in_use(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = ServeProcess("--model", str(folder / "missing"), "--port", str(port))
        assert server.exit_code() == 2
    assert f"port {port}" in server.log
    assert "missing" not in server.log


def test_a_model_that_is_not_there(folder: Path) -> None:
    server = ServeProcess("--model", str(folder / "missing"))
    assert server.exit_code() == 1
    assert "missing" in server.log
    assert "Traceback" not in server.log


def test_a_backend_that_is_not_there(start: Callable[..., ServeProcess]) -> None:
    server = start("--attention-backend", "tortch")
    assert server.exit_code() == 2
    assert "tortch" in server.log
    assert "torch" in server.log.replace("tortch", "")


def test_a_base_model_asked_to_chat(tmp_path: Path) -> None:
    save_tiny_model(tmp_path, chat_template=None)
    server = ServeProcess("--model", str(tmp_path), "--max-total-tokens", "512")
    try:
        server.wait_for("ready after")
        messages = [{"role": "user", "content": "hi"}]
        answer = httpx.post(f"{server.url}/v1/chat/completions", json={"messages": messages})
        assert answer.status_code == 400
        assert "template" in answer.json()["error"]["message"]
        assert httpx.post(f"{server.url}/v1/completions", json={"prompt": "a"}).status_code == 200
    finally:
        server.end()
