"""Three sources, one configuration."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cli_options import SettingsParser
from core.config import EngineConfig, ServerConfig
from core.errors import ConfigError
from core.settings import ENV_PREFIX, FIELDS, GROUPS, flag_of, read_settings


def parse(line: str) -> tuple[EngineConfig, ServerConfig]:
    engine, server, _ = SettingsParser("serve", "serve", "").parse_settings(line.split())
    return engine, server


def refusal(line: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse(line)
    return str(error.value)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {})


@pytest.fixture
def yaml_file(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "serve.yaml"
        path.write_text(text)
        return path

    return write


def test_only_the_model_is_required() -> None:
    engine, server = parse("--model m")
    assert engine == EngineConfig(model={"model": "m"})
    assert server == ServerConfig()


def test_every_field_has_an_option_and_field_names_are_distinct() -> None:
    assert len(FIELDS) == sum(len(config.model_fields) for config in GROUPS.values())
    options = SettingsParser("serve", "serve", "").format_help()
    assert all(flag_of(name) in options for name in FIELDS)


def test_options_of_every_kind() -> None:
    engine, server = parse(
        "--model m --page-size 32 --mem-fraction 0.5 --dtype bfloat16 --chat-template t.jinja --strict-plugins "
        "--attention-option tile=64 --attention-option mask=a=b --plugins-disable attention:acme "
        "--plugins-disable sampler:x --disable-radix-cache --disable-overlap-schedule --seed -3 --port 0"
    )
    assert engine.cache.page_size == 32
    assert engine.cache.mem_fraction == 0.5
    assert engine.cache.disable_radix_cache
    assert engine.model.dtype == "bfloat16"
    assert engine.model.chat_template == Path("t.jinja")
    assert engine.model.seed == -3
    assert engine.plugins.strict_plugins
    assert engine.plugins.plugins_disable == ["attention:acme", "sampler:x"]
    assert engine.attention.attention_option == {"tile": "64", "mask": "a=b"}
    assert engine.scheduler.disable_overlap_schedule is True
    assert server.port == 0


def test_a_flag_may_be_taken_back_and_one_may_be_left_open() -> None:
    assert parse("--model m")[0].scheduler.disable_overlap_schedule is None
    assert parse("--model m --disable-overlap-schedule=false")[0].scheduler.disable_overlap_schedule is False
    engine, _ = read_settings({"model": "m", "disable_radix_cache": "false"}, environ={"CORE_DISABLE_RADIX_CACHE": "1"})
    assert not engine.cache.disable_radix_cache


SOURCES = ("file", "environment", "options")


@given(given_by=st.sets(st.sampled_from(SOURCES)))
def test_the_command_line_wins_over_the_environment_over_the_file_over_defaults(
    given_by: set[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ports = {"file": 1001, "environment": 1002, "options": 1003}
    file = tmp_path_factory.mktemp("settings") / "serve.yaml"
    file.write_text(f"port: {ports['file']}" if "file" in given_by else "")
    environ = {"CORE_PORT": str(ports["environment"])} if "environment" in given_by else {}
    options: dict[str, Any] = {"model": "m"}
    if "options" in given_by:
        options["port"] = str(ports["options"])
    _, server = read_settings(options, file, environ)
    strongest = [source for source in SOURCES if source in given_by]
    assert server.port == (ports[strongest[-1]] if strongest else 30000)


def test_settings_by_key_are_merged_and_lists_replaced(yaml_file: Any) -> None:
    file = yaml_file("model: m\nattention-option: {tile: 1, depth: 2, wide: true}\nplugins_disable: [attention:acme]\n")
    environ = {"CORE_ATTENTION_OPTION": '{"depth": 3, "name": "x"}'}
    options = {"attention_option": {"name": "y"}, "plugins_disable": ["sampler:x"]}
    engine, _ = read_settings(options, file, environ)
    assert engine.attention.attention_option == {"tile": 1, "depth": 3, "wide": True, "name": "y"}
    assert engine.plugins.plugins_disable == ["sampler:x"]


def test_the_environment_is_the_process_own_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"CORE_MODEL": "m", "CORE_PAGE_SIZE": "64", "CORE_HOST": "", "OTHER": "1"})
    engine, server = parse("")
    assert (engine.model.model, engine.cache.page_size, server.host) == ("m", 64, "127.0.0.1")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "--model is missing: a hub id, a folder or a file"),
        ("--model m --pagesize 3", "unknown option --pagesize. Did you mean --page-size?"),
        ("--model m --pagesize=3", "unknown option --pagesize. Did you mean --page-size?"),
        ("--model m --page 3", "unknown option --page"),
        ("--model m --xyzzy", "unknown option --xyzzy. `serve --help` lists the options."),
        ("--model m extra", "unexpected argument 'extra'"),
        ("--model", "--model: expected one argument"),
        ("--model m --page-size 0", "--page-size: input should be greater than or equal to 1, got '0'."),
        ("--model m --page-size many", "--page-size: input should be a valid integer"),
        ("--model m --port 70000", "--port: input should be less than or equal to 65535, got '70000'."),
        ("--model m --dtype float8", "--dtype: invalid choice: 'float8'"),
        ("--model m --attention-option tile", "--attention-option: expected KEY=VALUE, got 'tile'"),
        ("--model m --attention-option =3", "--attention-option: expected KEY=VALUE, got '=3'"),
        ("--model m --strict-plugins perhaps", "--strict-plugins: input should be a valid boolean"),
        ("--model m --config no-such.yaml", "--config no-such.yaml: cannot be read: [Errno 2]"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_named(line: str, told: str) -> None:
    assert told in refusal(line)


def test_all_wrong_settings_are_named_at_once() -> None:
    message = refusal("--model m --page-size 0 --port -1 --new-token-ratio 2")
    assert [line.partition(":")[0] for line in message.splitlines()] == ["--page-size", "--new-token-ratio", "--port"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pagesize: 3", "unknown setting pagesize. Did you mean page_size? Valid: model, "),
        ("page_size: many", "page_size in {file}: input should be a valid integer"),
        ("- model", "expected settings as NAME: VALUE, got list."),
        ("model: [", "--config {file}: is not YAML:"),
        ("attention_option: 3", "attention_option in {file}: input should be a valid dictionary, got 3."),
    ],
)
def test_what_is_wrong_in_the_file_is_named(yaml_file: Any, text: str, told: str) -> None:
    file = yaml_file(text)
    assert told.format(file=file) in refusal(f"--model m --config {file}")


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"CORE_PORT": "tcp://10.0.0.1:80"}, "environment variable CORE_PORT: input should be a valid integer"),
        (
            {"CORE_ATTENTION_OPTION": "tile=3"},
            "environment variable CORE_ATTENTION_OPTION: expected JSON, got 'tile=3'",
        ),
        ({"CORE_DTYPE": "float8"}, "environment variable CORE_DTYPE: input should be 'auto', 'float32'"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named(environ: Mapping[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_settings({"model": "m"}, environ=environ)
    assert told in str(error.value)


def test_a_slip_in_a_variable_is_warned_of_and_variables_of_others_are_not(caplog: pytest.LogCaptureFixture) -> None:
    read_settings({"model": "m"}, environ={ENV_PREFIX + "PAGE_SIZ": "3", ENV_PREFIX + "DUMP_FILTER": "0x1"})
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "The environment variable CORE_PAGE_SIZ is no setting; did you mean CORE_PAGE_SIZE?")
    ]
