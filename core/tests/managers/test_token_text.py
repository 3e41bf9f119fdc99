"""Text and bytes of single tokens."""

from __future__ import annotations

import gc
import weakref

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from core.managers.token_text import token_table, token_text


def byte_level() -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: index for index, letter in enumerate(letters)}
    # " hé", and the first two bytes of a three-byte character.
    vocab |= {"Ġh": 256, "Ã©": 257, "ĠhÃ©": 258, "âĤ": 259}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken("<|end|>", special=True), AddedToken("<think> ▁", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def byte_fallback() -> PreTrainedTokenizerFast:
    vocab = {"<unk>": 0, "<s>": 1, **{f"<0x{byte:02X}>": 2 + byte for byte in range(256)}, "▁hé": 258, "<0xZZ>": 259}
    tokenizer = Tokenizer(models.BPE(vocab, [], byte_fallback=True, unk_token="<unk>"))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")


def word_piece() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "hé": 1, "##llo": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


def test_every_letter_of_the_alphabet_stands_for_another_byte() -> None:
    tokenizer = byte_level()
    assert {token_text(tokenizer, token_id)[1] for token_id in range(256)} == {bytes([byte]) for byte in range(256)}


@pytest.mark.parametrize("text", ["é", "€", "🙂", " ", "\n", "\u00ad", "\u007f", "a"])
def test_bytes_of_a_byte_level_text_join_to_its_utf8(text: str) -> None:
    tokenizer = byte_level()
    ((letters, _),) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    ids = [tokenizer.convert_tokens_to_ids(letter) for letter in letters]
    assert b"".join(token_text(tokenizer, token_id)[1] for token_id in ids) == text.encode()


def test_byte_level_tokens_have_their_text_and_exact_bytes() -> None:
    tokenizer = byte_level()
    assert token_text(tokenizer, 258) == (" hé", " hé".encode())
    assert token_text(tokenizer, 259) == ("\ufffd", b"\xe2\x82")
    assert token_text(tokenizer, tokenizer.convert_tokens_to_ids("<|end|>")) == ("<|end|>", b"<|end|>")
    added = "<think> ▁"
    assert token_text(tokenizer, tokenizer.convert_tokens_to_ids(added)) == (added, added.encode())


def test_byte_fallback_tokens_have_their_text_and_exact_bytes() -> None:
    tokenizer = byte_fallback()
    assert token_text(tokenizer, 258) == (" hé", " hé".encode())
    assert token_text(tokenizer, 2 + 0xE2) == ("\ufffd", b"\xe2")
    assert token_text(tokenizer, 2 + 0x41) == ("A", b"A")
    assert token_text(tokenizer, 1) == ("<s>", b"<s>")
    assert token_text(tokenizer, 259) == ("<0xZZ>", b"<0xZZ>")
    assert token_table(tokenizer).num_stripped_spaces == 1


def test_an_id_without_a_token_is_empty() -> None:
    assert token_text(byte_level(), 100_000) == ("", b"")


def test_a_scheme_that_is_not_known_gives_the_text_by_itself() -> None:
    tokenizer = word_piece()
    assert not token_table(tokenizer).exact
    assert token_text(tokenizer, 1) == ("hé", "hé".encode())
    assert token_text(tokenizer, 2) == ("##llo", b"##llo")


def test_a_table_is_kept_and_goes_with_its_tokenizer() -> None:
    tokenizer = byte_level()
    assert token_table(tokenizer) is token_table(tokenizer)
    gone = weakref.ref(token_table(tokenizer))
    del tokenizer
    gc.collect()
    assert gone() is None
