"""What the server needs from the front end of an engine. `core.managers.frontend.Frontend` is one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from core.managers.messages import EngineReady, EngineStats
from core.managers.outputs import GenerationOutput
from core.sampling.params import SamplingParams


class GenerationStream(Protocol):
    """News of all choices of one request, in order for each choice.

    Iteration ends after the last choice's last news, and raises `EngineDead` if the engine stops before.
    """

    def __aiter__(self) -> AsyncIterator[GenerationOutput]: ...

    def abort(self) -> None:
        """Stop every choice that still runs, within a few steps. Harmless on a finished request."""
        ...


class FrontEnd(Protocol):
    """Submits requests to a running engine."""

    @property
    def ready(self) -> EngineReady:
        """What the engine said when it had loaded."""
        ...

    @property
    def stats(self) -> EngineStats:
        """The latest gauges and counters."""
        ...

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer, as transformers makes it."""
        ...

    async def encode_async(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; long texts are encoded off the event loop."""
        ...

    def submit(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        extra_key: str = "",
        add_special_tokens: bool = True,
    ) -> GenerationStream:
        """Queue a request. Raises `InvalidRequest`, `Overloaded` or `EngineDead` before anything is queued."""
        ...

    async def flush_cache(self) -> int:
        """Empty the prefix cache; returns how many pages became free."""
        ...
