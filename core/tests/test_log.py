"""One line a record, in a process of its own: pytest has handlers in this one."""

from __future__ import annotations

import re
import subprocess
import sys


def test_records_from_the_level_on_are_one_line_each_on_stderr() -> None:
    code = (
        "import logging; from core.log import configure_logging\n"
        "configure_logging('warning'); configure_logging(logging.INFO)\n"
        "log = logging.getLogger('acme.kernel'); log.debug('hidden'); log.info('tile %d', 64); log.error('gone')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.fullmatch(f"{time} INFO    acme.kernel: tile 64\n{time} ERROR   acme.kernel: gone\n", done.stderr)
