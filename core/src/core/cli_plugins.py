"""`serve plugins list` and `serve plugins explain`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from core.cli_options import OptionParser, SettingsParser
from core.log import configure_logging
from core.plugins import FoundPlugin, PluginRegistry, Status, discover

_COLUMNS = ("kind", "name", "distribution", "version", "status")


def run_plugins(words: list[str]) -> int:
    """Run `serve plugins WORDS` and return the exit code. Raises `CoreError`."""
    parser = OptionParser(prog="serve plugins", description="What is installed, and what would be used.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, summary) in _COMMANDS.items():
        # Each command parses the rest by itself: `explain` takes the options of `serve`, which takes time to set up.
        commands.add_parser(name, help=summary, add_help=False)
    namespace, _ = parser.parse_known_args(words[:1])
    run, _ = _COMMANDS[namespace.command]
    return run(words[1:])


def _list(words: list[str]) -> int:
    parser = OptionParser(prog="serve plugins list", description=_COMMANDS["list"][1])
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.add_argument(
        "--plugins-disable", action="append", default=[], metavar="KIND:NAME", help="As for serve. May be repeated."
    )
    namespace = parser.parse_args(words)
    registry = discover(namespace.plugins_disable)
    if namespace.json:
        print(json.dumps([_entry(registry, found) for found in registry.entries], indent=2))
    elif sys.stdout.isatty():
        _print_table(registry)
    else:
        _print_plain(registry)
    return 0


def _explain(words: list[str]) -> int:
    parser = SettingsParser(
        "serve plugins explain", "serve plugins explain --model MODEL [options]", _COMMANDS["explain"][1]
    )
    parser.add_argument("--json", action="store_true", default=False, help="Print JSON.")
    config, server_config, namespace = parser.parse_settings(words)
    configure_logging(server_config.log_level)

    from core.managers.prepare import prepare

    selection = prepare(config).selection
    print(json.dumps(selection.to_json(), indent=2, default=str) if namespace.json else selection.table())
    return 0


_COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "list": (_list, "Shows the installed plugins. Reads their metadata and imports none."),
    "explain": (_explain, "Shows which plugins would serve a model, and why, and starts nothing."),
}


def _status(registry: PluginRegistry, found: FoundPlugin) -> str:
    status = registry.status(found)
    word: str = status.value
    return f"{word} ({registry.explain(found)})" if status is Status.INCOMPATIBLE else word


def _cells(registry: PluginRegistry) -> list[tuple[str, ...]]:
    return [
        (found.kind, found.name, found.distribution, found.version, _status(registry, found))
        for found in registry.entries
    ]


def _entry(registry: PluginRegistry, found: FoundPlugin) -> dict[str, str]:
    return {
        "kind": found.kind,
        "name": found.name,
        "distribution": found.distribution,
        "version": found.version,
        "status": registry.status(found).value,
        "reason": registry.explain(found),
        "group": found.group,
        "value": found.value,
    }


def _print_plain(registry: PluginRegistry) -> None:
    rows = [_COLUMNS, *_cells(registry)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_table(registry: PluginRegistry) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*_COLUMNS, box=None, header_style="bold", pad_edge=False)
    for *cells, status in _cells(registry):
        style = "green" if status == Status.FOUND.value else "yellow"
        table.add_row(*(Text(cell) for cell in cells), Text(status, style))
    Console().print(table)
