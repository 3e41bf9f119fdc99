"""The command line's options, derived from the configurations' fields."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin

from pydantic.fields import FieldInfo

from core.config import EngineConfig, ServerConfig
from core.errors import ConfigError
from core.settings import FIELDS, GROUPS, closest, flag_of, holds_several, read_settings, value_type

_MAX_WIDTH = 100
_HELP_COLUMN = 32
_EPILOG = (
    "Every option can also be set as a line of a YAML file (--config), as in `page_size: 32`, and as an environment "
    "variable, as in CORE_PAGE_SIZE=32. The command line wins over the environment, that over the file; "
    "an option without a value can be taken back there with =false."
)


class OptionParser(argparse.ArgumentParser):
    """Raises `ConfigError` where `argparse` would print the usage, dozens of options long, and exit."""

    def error(self, message: str) -> NoReturn:
        stop = "" if message.endswith("?") else "."
        raise ConfigError(f"{message}{stop} `{self.prog} --help` lists the options.")


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, _MAX_WIDTH) - 2
        super().__init__(prog, max_help_position=_HELP_COLUMN, width=width)


class SettingsParser(OptionParser):
    """Parses all settings. Options that were not given do not appear in the result."""

    def __init__(self, prog: str, usage: str, description: str) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=_EPILOG,
            formatter_class=_Formatter,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        self.add_argument("--config", type=Path, metavar="FILE", help="Read settings from a YAML file.")
        for config in GROUPS.values():
            group = self.add_argument_group((config.__doc__ or config.__name__).rstrip("."))
            for name, field in config.model_fields.items():
                group.add_argument(flag_of(name), dest=name, help=_help(field), **_form(name, field))

    def parse_settings(self, argv: Sequence[str]) -> tuple[EngineConfig, ServerConfig, argparse.Namespace]:
        """The configurations, from `argv` and the other sources, and what else was parsed.

        Raises:
            ConfigError: an option is unknown, or a setting wrong.
        """
        namespace, unknown = self.parse_known_args(argv)
        if unknown:
            self._refuse(unknown[0])
        given = vars(namespace)
        options = {name: _collected(FIELDS[name], given[name]) for name in FIELDS if name in given}
        engine, server = read_settings(options, given.get("config"))
        return engine, server, namespace

    def _refuse(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            self.error(f"unexpected argument {word!r}")
        flag = word.partition("=")[0]
        self.error(f"unknown option {flag}.{closest(flag, map(flag_of, FIELDS))}".rstrip("."))


def _form(name: str, field: FieldInfo) -> dict[str, Any]:
    """How the option of a setting is parsed. Plain values stay text; the configuration's own model converts them."""
    kind = value_type(field)
    if kind is bool:
        return {"nargs": "?", "const": True, "metavar": "BOOL"}
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    if get_origin(kind) is dict:
        return {"action": "append", "type": _key_and_value, "metavar": "KEY=VALUE"}
    if get_origin(kind) is list:
        return {"action": "append", "metavar": "VALUE"}
    return {"metavar": {int: "N", float: "X", Path: "FILE"}.get(kind, name.rpartition("_")[2].upper())}


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return key, value


def _collected(field: FieldInfo, given: Any) -> Any:
    return dict(given) if get_origin(value_type(field)) is dict else given


def _help(field: FieldInfo) -> str:
    text = field.description or ""
    if holds_several(field):
        text += " May be repeated."
    elif not field.is_required() and field.default not in (None, False):
        text = f"{text.rstrip('.')} (default: {field.default})."
    return text.replace("%", "%%")
