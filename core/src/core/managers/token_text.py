"""The text and the exact bytes of single tokens. Imports no torch by itself.

Most tokenizers spell bytes: byte-level BPE writes each byte as one letter of GPT-2's alphabet, and SentencePiece models
with byte fallback have a token `<0xE2>` for each byte. There the text of a sequence is the UTF-8 text of its tokens'
bytes, one after the other, which makes the bytes of a token exact and decoding incremental.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's letter -> byte: printable bytes stand for themselves, the others for letters from U+0100 on."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(0x100) if byte not in plain)
    return {**{chr(byte): byte for byte in plain}, **{chr(0x100 + at): byte for at, byte in enumerate(others)}}


_ALPHABET: Final = _byte_alphabet()


@final
class TokenTable:
    """The bytes of one tokenizer's tokens, kept once they were asked for.

    Attributes:
        exact: a sequence's text is the UTF-8 text of its tokens' bytes. Where it is False (a scheme that is not known
            here), bytes are those of the text that a token has by itself.
        num_stripped_spaces: spaces that decoding takes off the beginning of a whole text.
        special_ids: ids that `skip_special_tokens` leaves out.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._bytes: dict[int, bytes] = {}
        added = tokenizer.added_tokens_decoder
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        scheme = _scheme(tokenizer.backend_tokenizer.decoder) if tokenizer.is_fast else None
        self.exact = scheme is not None
        self.num_stripped_spaces = 0
        if scheme is None:
            # A table lives as long as the tokenizer does, so it must not hold it: the id's text is made by the caller.
            self._spelled: Callable[[int], str | None] = _no_spelling
            self._to_bytes: Callable[[str], bytes] = str.encode
        else:
            self._spelled = tokenizer.backend_tokenizer.id_to_token
            self._to_bytes, self.num_stripped_spaces = scheme

    def utf8(self, token_id: int) -> bytes:
        """The bytes of a token, of an `exact` table; none for an id without a token."""
        found = self._bytes.get(token_id)
        if found is None:
            spelled = self._spelled(token_id)
            found = self._bytes[token_id] = b"" if spelled is None else self._to_bytes(spelled)
        return found


def _no_spelling(token_id: int) -> str | None:
    raise AssertionError("the table is not exact")


_tables: WeakKeyDictionary[PreTrainedTokenizerBase, TokenTable] = WeakKeyDictionary()


def token_table(tokenizer: PreTrainedTokenizerBase) -> TokenTable:
    """The tokenizer's table: the same one at each call. A token that is added later may be missed."""
    table = _tables.get(tokenizer)
    if table is None:
        table = _tables[tokenizer] = TokenTable(tokenizer)
    return table


def token_text(tokenizer: PreTrainedTokenizerBase, token_id: int) -> tuple[str, bytes]:
    """A token's text by itself, special tokens too, and its bytes.

    A part of a character shows as U+FFFD in the text; the bytes are exact where the tokenizer's scheme is known (see
    `TokenTable`). An id without a token gives two empty ones.
    """
    table = token_table(tokenizer)
    if table.exact:
        data = table.utf8(token_id)
        return data.decode(errors="replace"), data
    text: str = tokenizer.decode([token_id], skip_special_tokens=False)
    return text, text.encode()


def _scheme(decoder: Any) -> tuple[Callable[[str], bytes], int] | None:
    """What turns a token's spelling into bytes, and how many spaces a whole text loses; None if neither is known."""
    if decoder is None:
        return None
    described = json.loads(decoder.__getstate__())
    steps = described["decoders"] if described["type"] == "Sequence" else [described]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return _from_alphabet, 0
    if kinds[:3] != ["Replace", "ByteFallback", "Fuse"] or kinds[3:] not in ([], ["Strip"]):
        return None
    old, new = steps[0]["pattern"].get("String"), steps[0]["content"]
    strip: dict[str, Any] = steps[3] if len(steps) > 3 else {"content": " ", "start": 0, "stop": 0}
    if old is None or strip["content"] != " " or strip["stop"]:
        return None
    return lambda spelled: _from_byte_token(spelled.replace(old, new)), int(strip["start"])


def _from_alphabet(spelled: str) -> bytes:
    """An added token may have letters outside the alphabet; it is meant as it stands."""
    try:
        return bytes([_ALPHABET[letter] for letter in spelled])
    except KeyError:
        return spelled.encode()


def _from_byte_token(spelled: str) -> bytes:
    match = _BYTE_TOKEN.fullmatch(spelled)
    return spelled.encode() if match is None else bytes([int(match[1], 16)])
