"""The tokens that a file lists, and what it says of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tokenizers import AddedToken

from core.errors import ModelError
from plugin_loader_gguf.gguf_file import GGUFFile

# Tokens that end an answer or a document. A file names one end-of-sequence id; models with several end tokens are known
# by their texts, as in llama.cpp.
END_TEXTS = frozenset(
    {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>", "<|endoftext|>", "<|end|>", "<end_of_turn>"}
)
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`tokens[i]` is the text of the id i as the file spells it, `types[i]` a `TokenType`."""

    tokens: list[str]
    types: list[int]
    bos_token_id: int | None
    eos_token_id: int | None
    unk_token_id: int | None
    pad_token_id: int | None

    @property
    def ids(self) -> dict[str, int]:
        """Text of a token -> its id."""
        return {token: index for index, token in enumerate(self.tokens)}

    def text(self, token_id: int | None) -> str | None:
        """The text of a token that may be absent."""
        return None if token_id is None else self.tokens[token_id]

    def added_tokens(self) -> list[AddedToken]:
        """The tokens that are found in a text before anything else: control tokens and those the user defined."""
        named = {self.bos_token_id, self.eos_token_id, self.unk_token_id, self.pad_token_id}
        added = []
        for index, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True)):
            special = kind in (TokenType.CONTROL, TokenType.UNKNOWN) or index in named
            if special or kind == TokenType.USER_DEFINED:
                added.append(AddedToken(token, normalized=False, special=special))
        return added


def read_vocabulary(file: GGUFFile) -> Vocabulary:
    """The file's tokens. Raises `ModelError` if it has none, or ids that are out of range."""
    tokens = _tokenizer_key(file, "tokens")
    if not tokens:
        raise ModelError(f"{file.path} has no tokenizer; give one with --tokenizer")
    types = _tokenizer_key(file, "token_type") or [TokenType.NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise ModelError(f"{file.path} has {len(tokens)} tokens but {len(types)} token types")
    named = {
        "bos_token_id": _tokenizer_key(file, "bos_token_id"),
        "eos_token_id": _tokenizer_key(file, "eos_token_id"),
        "unk_token_id": _tokenizer_key(file, "unknown_token_id"),
        "pad_token_id": _tokenizer_key(file, "padding_token_id"),
    }
    for name, token_id in named.items():
        if token_id is not None and not 0 <= token_id < len(tokens):
            raise ModelError(f"{file.path} has the {name} {token_id}, but only {len(tokens)} tokens")
    return Vocabulary(tokens, types, **named)


def end_token_ids(file: GGUFFile) -> list[int]:
    """Ids that end an answer: those the file names, the end of sequence first, and control tokens of known texts."""
    found = [_tokenizer_key(file, key) for key in _END_KEYS]
    tokens, types = _tokenizer_key(file, "tokens") or [], _tokenizer_key(file, "token_type") or []
    for index, (token, kind) in enumerate(zip(tokens, types, strict=False)):
        if kind == TokenType.CONTROL and token in END_TEXTS:
            found.append(index)
    return list(dict.fromkeys(token_id for token_id in found if token_id is not None))


def _tokenizer_key(file: GGUFFile, key: str) -> Any:
    return file.metadata.get(f"tokenizer.ggml.{key}")
