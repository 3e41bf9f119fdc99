"""Loads the tokenizer that belongs to a prepared model. Imports no torch by itself; the tokenizer's library may."""

from __future__ import annotations

import logging
from typing import Any

from core.errors import ModelError
from core.managers.prepare import Prepared

logger = logging.getLogger(__name__)


def load_tokenizer(prepared: Prepared) -> Any | None:
    """The tokenizer, as transformers makes it, or None, with a warning, if the model has none.

    Raises `ModelError` if another one than the model's own was asked for and cannot be loaded.
    """
    from core.loading.model_path import resolve_model
    from core.loading.open_loader import open_loader

    named = prepared.config.model.tokenizer
    if named is not None:
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(resolve_model(named, None))
        except (OSError, ValueError) as error:
            raise ModelError(f"The tokenizer {named!r} cannot be loaded: {error}") from error
    try:
        return open_loader(prepared.selection.weight_loader, prepared.info.path).load_tokenizer()
    except ModelError as error:
        logger.warning("text cannot be used, only token ids: %s", error)
        return None
