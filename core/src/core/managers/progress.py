"""`Progress`: a progress bar on batches that take a while. Imports no torch."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self, final

from tqdm import tqdm

DELAY = 1.0
"""Seconds before the bar appears: short batches have none."""


@final
class Progress:
    """Counts finished choices, and shows the tokens drawn a second, on stderr.

    Args:
        total: choices.
        shown: None shows the bar if stderr is a terminal.
    """

    def __init__(self, total: int, shown: bool | None) -> None:
        disable = not (sys.stderr.isatty() if shown is None else shown)
        self._bar = tqdm(total=total, unit="choice", delay=0.0 if shown else DELAY, disable=disable, dynamic_ncols=True)
        self._num_tokens = 0
        self._started = time.monotonic()

    def finished(self, num_tokens: int) -> None:
        """Count one choice of `num_tokens` tokens."""
        self._num_tokens += num_tokens
        rate = self._num_tokens / max(time.monotonic() - self._started, 1e-9)
        self._bar.set_postfix_str(f"{rate:.0f} tokens/s", refresh=False)
        self._bar.update()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()
