"""Reads the JSON files that lie beside a model's weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from core.errors import ModelError


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in the file. Raises `ModelError`, by the file's name, if it is no JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON ({error}); fetch it again") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a JSON {type(value).__name__}, expected an object; fetch it again")
    return value
