"""The command `serve`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from core import __version__
from core.cli_options import SettingsParser
from core.errors import ConfigError, CoreError, PluginError

_USAGE = """serve --model MODEL [options]
       serve plugins list | explain"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0: done; 1: failed; 2: a setting or a plugin does not fit, and nothing was started; 130: interrupted.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        if words[:1] == ["plugins"]:
            from core.cli_plugins import run_plugins

            code = run_plugins(words[1:])
            sys.stdout.flush()
            return code
        return _serve(words)
    except CoreError as error:
        print(f"serve: {error}", file=sys.stderr)
        return 2 if isinstance(error, (ConfigError, PluginError)) else 1
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. What is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _serve(words: list[str]) -> int:
    parser = SettingsParser("serve", _USAGE, "Serves a language model over HTTP, with OpenAI's API.")
    parser.add_argument("--version", action="version", version=f"core {__version__}")
    engine_config, server_config, _ = parser.parse_settings(words)

    from core.server.serve import run

    return run(engine_config, server_config)
