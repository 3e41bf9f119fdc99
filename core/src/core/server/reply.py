"""How one endpoint writes its answer: the interface that the drivers in `streaming.py` and `exchange.py` call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from core.managers.outputs import GenerationOutput, TokenLogprob
from core.server.request_record import RequestRecord


@dataclass(slots=True)
class WholeChoice:
    """One choice put together from its news."""

    prompt: int
    index: int
    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    @property
    def text(self) -> str:
        """All of the text so far."""
        return "".join(self.texts)

    def add(self, output: GenerationOutput) -> None:
        """Append news."""
        if output.text:
            self.texts.append(output.text)
        self.token_ids.extend(output.token_ids)
        self.logprobs.extend(output.logprobs or ())
        self.prompt_logprobs.extend(output.prompt_logprobs or ())
        self.finish_reason = output.finish_reason
        self.stop_reason = output.stop_reason
        self.prompt_tokens = output.prompt_tokens or self.prompt_tokens
        self.completion_tokens = output.completion_tokens or self.completion_tokens
        self.cached_tokens = output.cached_tokens or self.cached_tokens


class Reply(ABC):
    """Writes the answer to one request. All results are JSON."""

    @abstractmethod
    def opening(self) -> Iterable[bytes]:
        """Events before the first token."""

    @abstractmethod
    def event(self, prompt: int, output: GenerationOutput) -> bytes | None:
        """The event for one choice's news, or None if there is nothing to tell yet."""

    @abstractmethod
    def closing(self, record: RequestRecord) -> Iterable[bytes]:
        """Events after the last choice's end."""

    @abstractmethod
    def whole(self, choices: Sequence[WholeChoice], record: RequestRecord) -> bytes:
        """The answer without streaming; `choices` are sorted by prompt, then by index."""
