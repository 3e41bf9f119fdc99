"""`TextCodec`: text to token ids and back, without holding an event loop up. Imports no torch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, final

from core.errors import InvalidRequest

LONG_TEXT = 4096
"""Characters above which a text is encoded in a thread."""

T = TypeVar("T")


@final
class TextCodec:
    """A tokenizer, and one thread for what takes long: a long text does not keep all cores from the engine.

    Args:
        tokenizer: as transformers makes it; with None every call raises `InvalidRequest`.
    """

    def __init__(self, tokenizer: Any | None) -> None:
        self.tokenizer = tokenizer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        ids: list[int] = self._required().encode(text, add_special_tokens=add_special_tokens, verbose=False)
        return ids

    async def encode_async(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; of a long one off the event loop."""
        if len(text) < LONG_TEXT:
            return self.encode(text, add_special_tokens)
        return await self._in_thread(lambda: self.encode(text, add_special_tokens))

    async def encode_many(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """Token ids of each text, off the event loop; on all cores where the tokenizer can."""
        tokenizer = self._required()
        if not texts:
            return []

        def encode() -> list[list[int]]:
            batch = tokenizer(list(texts), add_special_tokens=add_special_tokens, verbose=False)
            ids: list[list[int]] = batch["input_ids"]
            return ids

        return await self._in_thread(encode)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids."""
        text: str = self._required().decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        return text

    def close(self) -> None:
        """End the thread. Harmless when repeated."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _required(self) -> Any:
        if self.tokenizer is None:
            raise InvalidRequest(
                "This model has no tokenizer: prompts must be token ids, and there is no text", param="prompt"
            )
        return self.tokenizer

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)
