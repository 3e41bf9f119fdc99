"""One readable line for each log record."""

from __future__ import annotations

import logging

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_DATE = "%Y-%m-%d %H:%M:%S"


def configure_logging(level: str | int) -> None:
    """Log to stderr from `level` on, by its name or logging's number.

    Keeps handlers that the embedding program has set up; calling it again is safe.
    """
    logging.basicConfig(format=_FORMAT, datefmt=_DATE)
    logging.getLogger().setLevel(level.upper() if isinstance(level, str) else level)
