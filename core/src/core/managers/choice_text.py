"""`ChoiceText`: the text of one choice, with or without stop strings. Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

from core.managers.detokenizer import IncrementalDetokenizer
from core.managers.stop_strings import StopStrings
from core.sampling.params import SamplingParams


class ChoiceText(ABC):
    """Takes tokens in, gives text out. Nothing may be pushed after a match, or after `end`."""

    @abstractmethod
    def push(self, token_ids: Sequence[int]) -> tuple[int, str] | None:
        """Take tokens in. If they complete a stop string: how many of them that took, and the stop string."""

    @abstractmethod
    def end(self) -> str | None:
        """Release what is held back, for no more tokens come. The stop string, if that completes one."""

    @abstractmethod
    def take(self) -> str:
        """Text that is complete and was not taken before."""


def choice_text(tokenizer: Any | None, prompt_ids: Sequence[int], params: SamplingParams) -> ChoiceText:
    """The right kind for a request. Without a tokenizer there is no text."""
    if tokenizer is None:
        return _NoText()
    detokenizer = IncrementalDetokenizer(tokenizer, prompt_ids, params.skip_special_tokens)
    if params.stop:
        return _StoppedText(detokenizer, StopStrings(params.stop, params.include_stop), params.min_tokens)
    return _PlainText(detokenizer)


@final
class _NoText(ChoiceText):
    def push(self, token_ids: Sequence[int]) -> None:
        return None

    def end(self) -> None:
        return None

    def take(self) -> str:
        return ""


@final
class _PlainText(ChoiceText):
    """Makes the text when it is taken, from all tokens at once: nobody needs it before."""

    def __init__(self, detokenizer: IncrementalDetokenizer) -> None:
        self._detokenizer = detokenizer
        self._token_ids: list[int] = []
        self._ended = False

    def push(self, token_ids: Sequence[int]) -> None:
        self._token_ids += token_ids

    def end(self) -> None:
        self._ended = True

    def take(self) -> str:
        token_ids, self._token_ids = self._token_ids, []
        text = self._detokenizer.push(token_ids) if token_ids else ""
        if self._ended:
            self._ended = False
            text += self._detokenizer.flush()
        return text


@final
class _StoppedText(ChoiceText):
    """Makes the text token by token, to know with which one a stop string is complete.

    The text of the first `min_tokens` tokens is passed on unseen: a stop string counts if it begins after them.
    """

    def __init__(self, detokenizer: IncrementalDetokenizer, stops: StopStrings, min_tokens: int) -> None:
        self._detokenizer = detokenizer
        self._stops = stops
        self._num_exempt = min_tokens
        self._texts: list[str] = []

    def push(self, token_ids: Sequence[int]) -> tuple[int, str] | None:
        for count, token_id in enumerate(token_ids, 1):
            text = self._detokenizer.push([token_id])
            if self._num_exempt > 0:
                self._num_exempt -= 1
                self._texts.append(text)
            elif (matched := self._match(text)) is not None:
                return count, matched
        return None

    def end(self) -> str | None:
        matched = self._match(self._detokenizer.flush())
        if matched is None:
            self._texts.append(self._stops.flush())
        return matched

    def _match(self, text: str) -> str | None:
        emitted, matched = self._stops.push(text)
        self._texts.append(emitted)
        return matched

    def take(self) -> str:
        text = "".join(self._texts)
        self._texts.clear()
        return text
