"""One readable line for each log record."""

from __future__ import annotations

import logging
from typing import Literal

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_DATE = "%Y-%m-%d %H:%M:%S"


def configure_logging(level: Literal["debug", "info", "warning", "error"]) -> None:
    """Log to stderr from `level` on. Keeps handlers that the embedding program has set up; calling it again is safe."""
    logging.basicConfig(format=_FORMAT, datefmt=_DATE)
    logging.getLogger().setLevel(level.upper())
