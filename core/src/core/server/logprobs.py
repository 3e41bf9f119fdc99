"""Log-probabilities in the shapes of OpenAI's two endpoints."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from core.managers.outputs import TokenLogprob
from core.server.schema.chat import ChatLogprobs, ChatTokenLogprob, TopLogprob
from core.server.schema.completions import CompletionLogprobs

LOWEST = -9999.0
"""OpenAI's value for "very unlikely": JSON has no infinity."""


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)


def _shown(text: str, utf8: bytes) -> str:
    """The text of a token, or, for a part of a character, its bytes as OpenAI's completions write them."""
    try:
        utf8.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in utf8)
    return text


class TextOffsets:
    """Counts the characters before each token, over the prompt and what follows it.

    A token that is a part of a character has that character's offset. Tokens in `invisible` (special tokens that are
    left out of the text) take no room.
    """

    def __init__(self, start: int, invisible: frozenset[int]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = start
        self._invisible = invisible

    def advance(self, token: TokenLogprob) -> int:
        """The token's offset in characters; moves past it."""
        offset = self._offset
        if token.token_id not in self._invisible:
            self._offset += len(self._decoder.decode(token.utf8))
        return offset


def completion_logprobs(tokens: Iterable[TokenLogprob], offsets: TextOffsets, top: int) -> CompletionLogprobs:
    """The completion endpoint's parallel lists. Moves `offsets` past the tokens.

    `top_logprobs` holds the `top` likeliest and the chosen token. Where two tokens read alike, the likelier stays.
    """
    shown = CompletionLogprobs([], [], [], [])
    for token in tokens:
        text = _shown(token.token, token.utf8)
        shown.tokens.append(text)
        shown.text_offset.append(offsets.advance(token))
        if token.logprob is None:
            shown.token_logprobs.append(None)
            shown.top_logprobs.append(None)
            continue
        logprob = _finite(token.logprob)
        likeliest: dict[str, float] = {}
        for _, other, utf8, value in token.top[:top]:
            likeliest.setdefault(_shown(other, utf8), _finite(value))
        likeliest.setdefault(text, logprob)
        shown.token_logprobs.append(logprob)
        shown.top_logprobs.append(likeliest)
    return shown


def joined(parts: Sequence[CompletionLogprobs]) -> CompletionLogprobs:
    """Successive parts of a stream as one."""
    whole = CompletionLogprobs([], [], [], [])
    for part in parts:
        whole.tokens.extend(part.tokens)
        whole.token_logprobs.extend(part.token_logprobs)
        whole.top_logprobs.extend(part.top_logprobs)
        whole.text_offset.extend(part.text_offset)
    return whole


def chat_logprobs(tokens: Iterable[TokenLogprob], top: int) -> ChatLogprobs:
    """The chat endpoint's list, with the `top` likeliest beside each token, which may leave out the chosen one."""
    return ChatLogprobs(
        [
            ChatTokenLogprob(
                token.token,
                LOWEST if token.logprob is None else _finite(token.logprob),
                list(token.utf8),
                [TopLogprob(text, _finite(value), list(utf8)) for _, text, utf8, value in token.top[:top]],
            )
            for token in tokens
        ]
    )
