"""`EngineClient`: how a front end reaches an engine, wherever the engine runs. Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from core.managers.messages import EngineReady, FromEngine, ToEngine


class EngineClient(ABC):
    """One engine, used from one event loop. `launch`, then `start`, then any number of `send` and `receive`."""

    @abstractmethod
    def launch(self) -> None:
        """Begin to build the engine and return at once, so that the caller can prepare other things meanwhile."""

    @abstractmethod
    async def start(self) -> EngineReady:
        """Wait until the engine can serve; launches it if nobody has.

        Raises `EngineDead`, or the error itself where the engine runs in this process, if it cannot be built. Nothing
        of it is left then. If cancelled, `close` cleans up.
        """

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the engine is ready and has not ended."""

    @abstractmethod
    def send(self, messages: Sequence[ToEngine]) -> None:
        """Hand messages over; the engine sees them before its next step. Never waits.

        Raises `EngineDead`.
        """

    @abstractmethod
    async def receive(self) -> list[FromEngine]:
        """Wait for news: at least one message. One caller at a time; cancel it only before `close`.

        Raises `EngineDead` with the reason once the engine is gone and all that it had sent is received.
        """

    @abstractmethod
    async def close(self) -> None:
        """End the engine and wait until nothing of it is left. Harmless when repeated, and at any stage."""
