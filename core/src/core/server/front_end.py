"""What the server needs from the front end of an engine. `core.managers.frontend.Frontend` is one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from core.managers.messages import EngineReady, EngineStats
from core.managers.outputs import GenerationOutput
from core.sampling.params import SamplingParams

if TYPE_CHECKING:
    from core.managers.input_validation import Admission


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
    def tokenizer(self) -> Any | None:
        """The model's tokenizer, with the interface of transformers' fast ones; None if it has none."""
        ...

    async def encode_async(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; long texts are encoded off the event loop."""
        ...

    def check(self, prompt: Sequence[int], params: SamplingParams) -> Admission:
        """Whether a request can be served at all. Queues nothing. Raises `InvalidRequest`."""
        ...

    def enqueue(self, admission: Admission, *, request_id: str, extra_key: str = "") -> GenerationStream:
        """Queue what `check` has let pass. Raises `Overloaded` or `EngineDead`; nothing is queued then."""
        ...

    async def flush_cache(self) -> int:
        """Empty the prefix cache; returns how many pages became free."""
        ...
