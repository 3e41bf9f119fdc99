"""`IncrementalDetokenizer`: tokens in, complete text out. Imports no torch by itself."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from core.managers.token_text import TokenTable, token_table

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_REPLACEMENT: Final = "\ufffd"
_MAX_CHARACTER_BYTES: Final = 4


@final
class IncrementalDetokenizer:
    """Turns the tokens that follow a prompt into text, at a cost that does not grow with what came before.

    All that `push` and `flush` return, joined, is what the tokens add to the decoded prompt. A leading space that
    decoding strips from a whole text is therefore kept after a prompt that has text. Nothing is cleaned up: spaces
    before punctuation stay. Text once returned is never taken back, and a character comes when its last byte does;
    bytes that cannot become a character come as U+FFFD as soon as that is certain (halves of surrogates, which UTF-8
    has no place for, one byte later).

    One difference from `tokenizer.decode`: in a run of byte tokens (`<0xE2>`) that is not UTF-8 as a whole, the
    characters that are complete come as they are; the tokenizers library turns each byte of such a run into U+FFFD,
    which nobody can know before the run ends.

    Args:
        tokenizer: a transformers tokenizer.
        prompt_ids: read only here. If it ends inside a character, the text begins with that character.
        skip_special_tokens: special tokens have no text.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, prompt_ids: Sequence[int], skip_special_tokens: bool
    ) -> None:
        table = token_table(tokenizer)
        self._text: _Text = (
            _ByteText(table, prompt_ids, skip_special_tokens)
            if table.exact
            else _WindowText(tokenizer, prompt_ids, skip_special_tokens)
        )

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that these tokens complete; may be empty."""
        return self._text.push(token_ids)

    def flush(self) -> str:
        """What is held back, an incomplete character, as U+FFFD. Nothing may be pushed after it."""
        return self._text.flush()


class _Text(ABC):
    @abstractmethod
    def push(self, token_ids: Sequence[int]) -> str: ...

    @abstractmethod
    def flush(self) -> str: ...


@final
class _ByteText(_Text):
    """For tokens whose bytes are known: decodes the stream of bytes."""

    def __init__(self, table: TokenTable, prompt_ids: Sequence[int], skip_special_tokens: bool) -> None:
        self._utf8 = table.utf8
        self._skipped: frozenset[int] = table.special_ids if skip_special_tokens else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        tail = self._tail(prompt_ids)
        self._num_to_strip = 0 if tail else table.num_stripped_spaces
        self._decoder.decode(tail)
        # Bytes of a character that the prompt began, and what has come after them, until its fate is known.
        self._begun: bytes = self._decoder.getstate()[0]
        self._num_own = len(self._begun.decode(errors="replace"))

    def _tail(self, prompt_ids: Sequence[int]) -> bytes:
        """The prompt's last bytes: enough to hold all of an incomplete character."""
        tail = b""
        for token_id in reversed(prompt_ids):
            if token_id not in self._skipped:
                tail = self._utf8(token_id) + tail
                if len(tail) >= _MAX_CHARACTER_BYTES:
                    break
        return tail

    def push(self, token_ids: Sequence[int]) -> str:
        return self._decode(b"".join([self._utf8(i) for i in token_ids if i not in self._skipped]), False)

    def flush(self) -> str:
        return self._decode(b"", True)

    def _decode(self, data: bytes, final: bool) -> str:
        text = self._decoder.decode(data, final)
        if self._begun:
            self._begun += data
            if text:
                # If they did not become a character, then their U+FFFD are the end of the prompt's own text.
                if text[0] == _REPLACEMENT and not self._begun.startswith(_REPLACEMENT.encode()):
                    text = text[self._num_own :]
                self._begun = b""
        while self._num_to_strip and text:
            if text[0] != " ":
                self._num_to_strip = 0
                break
            text = text[1:]
            self._num_to_strip -= 1
        return text


@final
class _WindowText(_Text):
    """For any other tokenizer: decodes the new tokens behind a few old ones, and again without the new ones.

    Right if a few tokens of context are all that decoding looks at. The scheme is Hugging Face's, of
    text-generation-inference.
    """

    _CONTEXT: Final = 6

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, prompt_ids: Sequence[int], skip_special_tokens: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._context = list(prompt_ids[-self._CONTEXT :])
        self._pending: list[int] = []

    def push(self, token_ids: Sequence[int]) -> str:
        self._pending += token_ids
        for count in range(len(self._pending), max(0, len(self._pending) - _MAX_CHARACTER_BYTES), -1):
            text = self._new_text(count)
            if not text.endswith(_REPLACEMENT):
                break
        else:
            # No token but the last few can belong to a character that is still incomplete.
            count = max(0, len(self._pending) - _MAX_CHARACTER_BYTES + 1)
            text = self._new_text(count)
        self._context = [*self._context, *self._pending[:count]][-self._CONTEXT :]
        del self._pending[:count]
        return text

    def flush(self) -> str:
        text = self._new_text(len(self._pending))
        self._pending.clear()
        return text

    def _new_text(self, count: int) -> str:
        """What the first `count` pending tokens add."""
        old = self._decode(self._context)
        return self._decode(self._context + self._pending[:count])[len(old) :] if count else ""

    def _decode(self, token_ids: list[int]) -> str:
        text: str = self._tokenizer.decode(
            token_ids, skip_special_tokens=self._skip, clean_up_tokenization_spaces=False
        )
        return text
