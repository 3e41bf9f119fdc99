"""SentencePiece vocabularies, against SentencePiece's own way of joining, written out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from plugin_loader_gguf.loader import GGUFLoader

Write = Callable[..., Path]
Open = Callable[[Path], GGUFLoader]

PIECES = [
    "▁t",
    "he",
    "▁the",
    "at",
    "▁c",
    "▁cat",
    "▁▁",
    "in",
    "▁in",
    "aa",
    "aaa",
    "aaaa",
    "[IN",
    "ST",
    "[INST",
    "[INST]",
]
LETTERS = ["▁", "t", "h", "e", "a", "c", "i", "n", "[", "I", "N", "S", "T", "]", "日", "é", "<", ">", "s", "/"]
TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES, *LETTERS, "<|x|>"]
TYPES = [2, 3, 3, *[6] * 256, *[1] * (len(PIECES) + len(LETTERS)), 3]
# As SentencePiece's trainer scores BPE: a piece by its rank, then the single letters.
SCORES = [0.0] * 259 + [-float(rank) for rank in range(len(PIECES) + len(LETTERS))] + [0.0]
IDS = {token: index for index, token in enumerate(TOKENS)}


def metadata(**extra: Any) -> dict[str, Any]:
    keys = {
        "model": "llama",
        "pre": "default",
        "tokens": TOKENS,
        "token_type": TYPES,
        "scores": SCORES,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        **extra,
    }
    return {"llama.block_count": 1, **{f"tokenizer.ggml.{key}": value for key, value in keys.items()}}


@pytest.fixture
def tokenizer(write_gguf: Write, open_loader: Open) -> PreTrainedTokenizerBase:
    return open_loader(write_gguf(metadata())).load_tokenizer()


def joined(text: str) -> list[int]:
    """Of all neighbours join those whose union has the best score, the leftmost first, until there are none."""
    scores = dict(zip(TOKENS, SCORES, strict=True))
    parts = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        pairs = [(scores[a + b], -at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in PIECES]
        if not pairs:
            break
        at = -max(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    known: list[int] = []
    for part in parts:
        known += [IDS[part]] if part in IDS else [IDS[f"<0x{byte:02X}>"] for byte in part.encode()]
    return known


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text("the cat in[INST]日é€🙂", max_size=24))
def test_joins_as_sentencepiece_does(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids == [1, *joined(text)]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_every_stretch_between_special_tokens_gets_its_leading_space(tokenizer: PreTrainedTokenizerBase) -> None:
    """As in the tokenizer.json of Llama 2 and in llama.cpp; a space that is there already counts besides."""
    assert tokenizer.encode("<s>the<|x|>cat", add_special_tokens=False) == [1, IDS["▁the"], IDS["<|x|>"], IDS["▁cat"]]
    assert tokenizer.encode(" the", add_special_tokens=False) == [IDS["▁"], IDS["▁the"]]


def test_without_the_leading_space_nothing_is_added_or_stripped(write_gguf: Write, open_loader: Open) -> None:
    tokenizer = open_loader(write_gguf(metadata(add_space_prefix=False))).load_tokenizer()
    ids = tokenizer.encode("the cat", add_special_tokens=False)
    assert ids == [IDS["t"], IDS["he"], IDS["▁cat"]]
    assert tokenizer.decode([IDS["▁cat"]]) == " cat"


def test_the_begin_token_can_be_left_out(write_gguf: Write, open_loader: Open) -> None:
    tokenizer = open_loader(write_gguf(metadata(add_bos_token=False))).load_tokenizer()
    assert tokenizer.encode("the") == [IDS["▁the"]]


@pytest.mark.parametrize("text", ["the cat", "thecat in the cat", "aaaaaaa a", "日é€🙂 the", "[INST] the [INST]"])
def test_ids_equal_those_of_transformers_own_reading(write_gguf: Write, open_loader: Open, text: str) -> None:
    path = write_gguf(metadata())
    expected = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    assert open_loader(path).load_tokenizer().encode(text) == expected.encode(text)
