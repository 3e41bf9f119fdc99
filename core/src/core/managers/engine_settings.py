"""Flat settings, as `core.Engine` takes them, to the configuration of each component. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from core.config import COMPONENTS, EngineConfig
from core.errors import ConfigError

_HOME = {name: component for component, config in COMPONENTS.items() for name in config.model_fields}
"""Setting -> its component."""


def engine_config(settings: Mapping[str, Any]) -> EngineConfig:
    """Sort settings into their components. Raises `ConfigError` for an unknown name or a wrong value."""
    sorted_settings: dict[str, dict[str, Any]] = {component: {} for component in COMPONENTS}
    for name, value in settings.items():
        if name not in _HOME:
            near = get_close_matches(name, _HOME, n=3) or sorted(_HOME)
            raise ConfigError(f"There is no setting {name!r}; did you mean {' or '.join(near)}?")
        sorted_settings[_HOME[name]][name] = value
    try:
        return EngineConfig.model_validate(sorted_settings)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        raise ConfigError(
            "; ".join(f"setting {item['loc'][-1]}: {item['msg']}, got {item['input']!r:.80}" for item in wrong)
        ) from None
