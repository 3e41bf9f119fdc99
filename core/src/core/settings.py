"""Reads the command line's options, the environment and a YAML file into the configurations.

The one place that reads environment variables. A setting has one name in all three: `page_size` in the file is
`--page-size` on the command line and `CORE_PAGE_SIZE` in the environment. The command line wins over the environment,
that over the file; settings that hold several values by key are merged.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from core.config import COMPONENTS, Config, EngineConfig, ServerConfig
from core.errors import ConfigError

logger = logging.getLogger(__name__)

ENV_PREFIX = "CORE_"
GROUPS: dict[str, type[Config]] = {**COMPONENTS, "server": ServerConfig}
"""Component -> its configuration; the names of all fields are distinct."""

FIELDS: dict[str, FieldInfo] = {
    name: field for component in GROUPS.values() for name, field in component.model_fields.items()
}


def flag_of(name: str) -> str:
    """The command-line option of a setting."""
    return "--" + name.replace("_", "-")


def closest(name: str, valid: Iterable[str]) -> str:
    """A sentence that proposes a valid name, or nothing if none is close."""
    close = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.6)
    return f" Did you mean {close[0]}?" if close else ""


def value_type(field: FieldInfo) -> Any:
    """The type of a setting's value when it is given; None is what it is when it is not."""
    if get_origin(field.annotation) in (Union, UnionType):
        (annotation,) = (argument for argument in get_args(field.annotation) if argument is not type(None))
        return annotation
    return field.annotation


def holds_several(field: FieldInfo) -> bool:
    """Whether the setting is a list or a dictionary."""
    return get_origin(value_type(field)) in (list, dict)


@dataclass(frozen=True, slots=True)
class Source:
    """Some settings, and how their source spells a setting's name."""

    values: Mapping[str, Any]
    spell: Callable[[str], str]


def read_settings(
    options: Mapping[str, Any], file: Path | None = None, environ: Mapping[str, str] | None = None
) -> tuple[EngineConfig, ServerConfig]:
    """The configurations that the three sources give together.

    Args:
        options: settings that the command line gives, by name. Text is converted.
        file: a YAML file, or None.
        environ: environment variables; by default the process' own.

    Raises:
        ConfigError: a setting is wrong, a model is missing, or the file has an unknown name or cannot be read.
    """
    sources = [
        Source(options, flag_of),
        _environment(os.environ if environ is None else environ),
        *([_file(file)] if file else []),
    ]
    values: dict[str, Any] = {}
    for source in reversed(sources):
        for name, value in source.values.items():
            before = values.get(name)
            values[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    if "model" not in values:
        raise ConfigError("--model is missing: a hub id, a folder or a file, such as --model Qwen/Qwen3-8B.")

    components: dict[str, Config] = {}
    complaints: list[str] = []
    for component, config in GROUPS.items():
        try:
            components[component] = config(**{name: values[name] for name in config.model_fields if name in values})
        except ValidationError as error:
            complaints += [_complaint(details["loc"], details["msg"], sources) for details in error.errors()]
    if complaints:
        raise ConfigError("\n".join(complaints))
    server = components.pop("server")
    assert isinstance(server, ServerConfig)
    return EngineConfig.model_validate(components), server


def _environment(environ: Mapping[str, str]) -> Source:
    variables = {ENV_PREFIX + name.upper(): name for name in FIELDS}
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith(ENV_PREFIX) or not text:
            continue
        if name := variables.get(variable):
            values[name] = _decoded(variable, text) if holds_several(FIELDS[name]) else text
        elif close := difflib.get_close_matches(variable, variables, n=1, cutoff=0.85):
            # Other programs own variables with this prefix too, so only what looks like a slip is worth a word.
            logger.warning("The environment variable %s is no setting; did you mean %s?", variable, close[0])
    return Source(values, lambda name: f"environment variable {ENV_PREFIX}{name.upper()}")


def _decoded(variable: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"environment variable {variable}: expected JSON, got {text!r} ({error}).") from None


def _file(path: Path) -> Source:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: cannot be read: {error}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"--config {path}: is not YAML: {error}") from None
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise ConfigError(f"--config {path}: expected settings as NAME: VALUE, got {type(content).__name__}.")
    values = {str(name).replace("-", "_"): value for name, value in content.items()}
    for name in values:
        if name not in FIELDS:
            raise ConfigError(
                f"--config {path}: unknown setting {name}.{closest(name, FIELDS)} Valid: {', '.join(FIELDS)}."
            )
    return Source(values, lambda name: f"{name} in {path}")


def _complaint(location: tuple[int | str, ...], message: str, sources: list[Source]) -> str:
    """One line on one wrong setting, in the spelling of the source that it came from."""
    name = str(location[0])
    source = next(source for source in sources if name in source.values)
    return f"{source.spell(name)}: {message[0].lower()}{message[1:]}, got {source.values[name]!r}."
