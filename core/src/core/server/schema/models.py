"""OpenAI's list of models."""

from __future__ import annotations

import msgspec


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One served model. `max_model_len`, an extension, is the most tokens of a request, None while loading."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "core"
    root: str
    max_model_len: int | None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `/v1/models`."""

    object: str = "list"
    data: list[ModelCard]
