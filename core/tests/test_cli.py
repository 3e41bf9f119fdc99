"""The command `serve`, in this process and in its own."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from core import __version__
from core.cli import main
from core.errors import ConfigError, CoreError, ModelError, SelectionError
from core.hookspecs import ATTENTION, SAMPLER


@pytest.fixture(autouse=True)
def _unchanged_logging() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("CORE_")]:
        monkeypatch.delenv(name)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "core", *words], capture_output=True, text=True)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `run` was called with; the server itself is replaced."""
    calls: list[Any] = []

    def run(engine_config: Any, server_config: Any) -> int:
        calls.append((engine_config, server_config))
        return 7

    monkeypatch.setattr("core.server.serve.run", run)
    return calls


def test_serve_runs_the_server_and_returns_its_code(served: list[Any]) -> None:
    assert main(["--model", "m", "--port", "0", "--page-size", "1"]) == 7
    ((engine, server),) = served
    assert (engine.model.model, engine.cache.page_size, server.port) == ("m", 1, 0)


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError("told"), 2), (SelectionError("told"), 2), (ModelError("told"), 1), (CoreError("told"), 1)],
)
def test_an_error_is_one_message_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: CoreError, code: int
) -> None:
    def run(*configs: Any) -> int:
        raise error

    monkeypatch.setattr("core.server.serve.run", run)
    assert main(["--model", "m"]) == code
    assert capsys.readouterr().err == "serve: told\n"


def test_an_interrupt_has_the_usual_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*configs: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("core.server.serve.run", run)
    assert main(["--model", "m"]) == 130


def test_an_unknown_option_starts_nothing(served: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "m", "--atention-backend", "torch"]) == 2
    assert "unknown option --atention-backend. Did you mean --attention-backend?" in capsys.readouterr().err
    assert not served


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"core {__version__}\n"


@pytest.mark.parametrize("width", ["60", "80", "100", "200"])
def test_help_fits_the_terminal_and_is_light(width: str) -> None:
    code = (
        "import sys; from core.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print([m for m in ('torch', 'transformers', 'rich', 'starlette') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"COLUMNS": width}
    )
    *lines, imported = done.stdout.splitlines()
    assert imported == "[]"
    assert max(map(len, lines)) <= min(int(width), 100)
    assert "The memory for keys and values:" in lines


def test_a_failing_command_prints_no_traceback() -> None:
    done = command("--model", "m", "--page-size", "0")
    assert done.returncode == 2
    assert done.stderr == "serve: --page-size: input should be greater than or equal to 1, got '0'.\n"
    assert done.stdout == ""


@pytest.fixture
def installed(site: Any) -> Any:
    """Plugins that would raise if anything imported them."""
    site.install("acme-attention", ATTENTION.group, "acme", "raise SystemExit('imported')", version="1.2.3")
    site.install("one", SAMPLER.group, "twice", "raise SystemExit('imported')")
    site.install("two", SAMPLER.group, "twice", "raise SystemExit('imported')")
    site.install("next", "core.attention.v2", "next", "raise SystemExit('imported')")
    return site


def test_list_in_a_pipe_is_plain_text_and_imports_no_plugin(installed: Any) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(installed.folder)!r}); from core.cli import main; "
        "code = main(['plugins', 'list', '--plugins-disable', 'sampler:two:twice']); "
        "print(code, 'torch' in sys.modules, [m for m in sys.modules if m.startswith(('acme_', 'plugin_'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    *lines, end = done.stdout.splitlines()
    assert end == "0 False []"
    assert re.fullmatch(r"kind +name +distribution +version +status", lines[0])
    rows = {tuple(re.split(r" {2,}", line)) for line in lines[1:]}
    assert {
        ("attention", "acme", "acme-attention", "1.2.3", "found"),
        ("attention", "next", "next", "1.0", "incompatible (built for API v2, this core has v1)"),
        ("sampler", "twice", "one", "1.0", "found"),
        ("sampler", "twice", "two", "1.0", "disabled"),
    } <= rows


def test_list_as_json(installed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "list", "--json"]) == 0
    entries = {(entry["distribution"], entry["name"]): entry for entry in json.loads(capsys.readouterr().out)}
    assert entries["acme-attention", "acme"] == {
        "kind": "attention",
        "name": "acme",
        "distribution": "acme-attention",
        "version": "1.2.3",
        "status": "found",
        "reason": "",
        "group": "core.attention.v1",
        "value": "acme_attention_acme",
    }
    assert entries["one", "twice"]["status"] == entries["two", "twice"]["status"] == "conflict"
    assert "write one:twice" in entries["one", "twice"]["reason"]
    assert entries["next", "next"]["status"] == "incompatible"


@pytest.mark.parametrize("no_color", [False, True])
def test_list_on_a_terminal_is_a_table(
    installed: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, no_color: bool
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    assert main(["plugins", "list"]) == 0
    out = capsys.readouterr().out
    assert ("\x1b[32m" in out) is not no_color
    plain = re.sub(r"\x1b\[[\d;]*m", "", out)
    assert re.search(r"attention +acme +acme-attention +1.2.3 +found", plain)


@pytest.mark.parametrize("words", [[], ["lst"], ["list", "--jsn"], ["explain"]])
def test_plugins_without_what_it_needs_says_so(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("serve: ")
    assert "list" in error or "--jsn" in error or "--model is missing" in error


@pytest.mark.parametrize("as_json", [False, True])
def test_explain_prints_the_selection(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    configs = []

    def prepare(config: Any) -> Any:
        configs.append(config)
        return SimpleNamespace(selection=SimpleNamespace(table=lambda: "the table", to_json=lambda: {"digest": "d"}))

    module = ModuleType("core.managers.prepare")
    module.prepare = prepare  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "core.managers.prepare", module)
    words = ["--model", "m", "--attention-backend", "acme", "--page-size", "4"]
    assert main(["plugins", "explain", *words, *(["--json"] if as_json else [])]) == 0
    out = capsys.readouterr().out
    assert (json.loads(out) == {"digest": "d"}) if as_json else (out == "the table\n")
    (config,) = configs
    assert (config.attention.attention_backend, config.cache.page_size) == ("acme", 4)


def test_a_reader_that_leaves_early_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "core", "plugins", "list", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()
