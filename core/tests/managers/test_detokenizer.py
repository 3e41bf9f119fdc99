"""Incremental text equals the text of the whole."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from core.managers.detokenizer import IncrementalDetokenizer
from core.managers.token_text import token_table, token_text

CORPUS = [
    "the cat sat on the mat",
    "naïve café, 日本語 テキスト",
    "🙂🙃 ok 🙂",
    "x = [1, 2,  3]\n\treturn x",
    "Ünïcödé €",
]


@functools.cache
def byte_level() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


@functools.cache
def byte_fallback() -> PreTrainedTokenizerFast:
    words = ["▁", "▁the", "▁cat", "s", "é", "▁▁", "▁日本", "<|x|>"]
    names = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    tokenizer = Tokenizer(
        models.BPE({name: i for i, name in enumerate(names)}, [], byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens([AddedToken("<|x|>", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")


@functools.cache
def word_piece() -> PreTrainedTokenizerFast:
    names = ["[UNK]", "[CLS]", "the", "cat", "##s", "sat", "##é", "日", "."]
    tokenizer = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", cls_token="[CLS]")


def streamed(
    tokenizer: PreTrainedTokenizerFast, prompt: list[int], pieces: list[list[int]], skip: bool = True
) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, prompt, skip)
    return [*(detokenizer.push(piece) for piece in pieces), detokenizer.flush()]


def pieces_of(ids: st.SearchStrategy[int]) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(ids, max_size=4), max_size=20)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_byte_level_text_joins_to_what_the_library_decodes(data: st.DataObject, skip: bool) -> None:
    tokenizer = byte_level()
    pieces = data.draw(pieces_of(st.integers(0, len(tokenizer) + 3)))
    ids = [token_id for piece in pieces for token_id in piece]
    assert "".join(streamed(tokenizer, [], pieces, skip)) == tokenizer.decode(ids, skip_special_tokens=skip)


@settings(max_examples=200, deadline=None)
@given(texts=st.lists(st.text(max_size=8), max_size=6), skip=st.booleans())
def test_byte_fallback_text_joins_to_what_the_library_decodes(texts: list[str], skip: bool) -> None:
    """Where each run of byte tokens is UTF-8, as in all text that was ever encoded."""
    tokenizer = byte_fallback()
    pieces = [[token_id] for text in texts for token_id in [*tokenizer.encode(text), 1, len(tokenizer) - 1]]
    ids = [token_id for piece in pieces for token_id in piece]
    assert "".join(streamed(tokenizer, [], pieces, skip)) == tokenizer.decode(ids, skip_special_tokens=skip)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_byte_tokens_join_to_the_text_of_their_bytes(data: st.DataObject) -> None:
    tokenizer = byte_fallback()
    pieces = data.draw(pieces_of(st.integers(2, len(tokenizer) - 1)))
    raw = b"".join(token_text(tokenizer, token_id)[1] for piece in pieces for token_id in piece)
    text = raw.decode(errors="replace")
    assert "".join(streamed(tokenizer, [], pieces, skip=False)) == text.removeprefix(" ")


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_character_comes_with_its_last_byte_and_bad_bytes_as_soon_as_they_are_certain(data: st.DataObject) -> None:
    """At most three bytes are ever held back, and only if they begin a character."""
    tokenizer = byte_level()
    ids = data.draw(st.lists(st.integers(2, 257), max_size=30))
    detokenizer = IncrementalDetokenizer(tokenizer, [], True)
    raw, got = b"", ""
    for token_id in ids:
        raw += token_text(tokenizer, token_id)[1]
        got += detokenizer.push([token_id])
        # What could still become a character: an end that some continuation makes valid.
        held = next((size for size in (3, 2, 1) if _begins_character(raw[-size:], size)), 0)
        assert got == raw[: len(raw) - held].decode(errors="replace")


def _begins_character(end: bytes, size: int) -> bool:
    if len(end) != size:
        return False
    if size == 2 and end[0] == 0xED and end[1] & 0xC0 == 0x80:
        return True  # Python's decoder waits for the third byte even where the second says that it is a surrogate.
    for tail in (b"\x80", b"\xbf", b"\x80\x80", b"\xbf\xbf", b"\x80\x80\x80", b"\xbf\xbf\xbf", b"\x90\x80\x80"):
        try:
            if len((end + tail).decode()) == 1:
                return True
        except UnicodeDecodeError:
            continue
    return False


@settings(max_examples=200, deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_another_scheme_joins_to_what_the_library_decodes(data: st.DataObject, skip: bool) -> None:
    tokenizer = word_piece()
    assert not token_table(tokenizer).exact
    pieces = data.draw(pieces_of(st.integers(0, 8)))
    ids = [token_id for piece in pieces for token_id in piece]
    assert "".join(streamed(tokenizer, [], pieces, skip)) == tokenizer.decode(ids, skip_special_tokens=skip)


def test_another_scheme_sees_the_prompt_as_context() -> None:
    assert streamed(word_piece(), [1, 2, 3], [[4], [5], [6]]) == ["s", " sat", "é", ""]


def test_another_scheme_holds_part_of_a_character_but_not_forever() -> None:
    """Through a decoder that is not known, so that the text itself is all there is to go by."""
    tokenizer = byte_level()
    fused = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    fused.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()])
    other = PreTrainedTokenizerFast(tokenizer_object=fused, bos_token="<s>", eos_token="</s>")
    assert not token_table(other).exact
    euro = [tokenizer.convert_tokens_to_ids(letter) for letter in "âĤ¬"]
    assert streamed(other, [], [[euro[0]], [euro[1]], [euro[2]]]) == ["", "", "€", ""]
    bad = euro[2]
    texts = streamed(other, [], [[bad]] * 12)
    assert "".join(texts) == "\ufffd" * 12
    assert "".join(texts[:8]) != ""


@pytest.mark.parametrize("text", ["日本語", "🙂🙃", "é", "a€b"])
def test_characters_are_whole_at_every_step(text: str) -> None:
    tokenizer = byte_level()
    letters = "".join(
        piece for piece, _ in pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    )
    texts = streamed(tokenizer, [], [[tokenizer.convert_tokens_to_ids(letter)] for letter in letters])
    assert [part for part in texts if part] == list(text)


def test_an_incomplete_character_comes_as_a_replacement_at_the_end() -> None:
    tokenizer = byte_level()
    ids = [tokenizer.convert_tokens_to_ids(letter) for letter in "aðŁ"]
    assert streamed(tokenizer, [], [ids]) == ["a", "\ufffd"]


def test_a_leading_space_is_stripped_from_a_whole_text_only() -> None:
    tokenizer = byte_fallback()
    the, cat, two_spaces = (tokenizer.convert_tokens_to_ids(token) for token in ("▁the", "▁cat", "▁▁"))
    assert streamed(tokenizer, [], [[the], [cat]]) == ["the", " cat", ""]
    assert streamed(tokenizer, [1], [[the], [cat]]) == ["the", " cat", ""]
    assert streamed(tokenizer, [1, the], [[cat]]) == [" cat", ""]
    assert streamed(tokenizer, [], [[], [two_spaces]]) == ["", " ", ""]


@settings(max_examples=200, deadline=None)
@given(text=st.text(min_size=1, max_size=12), data=st.data())
def test_a_prompt_that_ends_inside_a_character_is_continued(text: str, data: st.DataObject) -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode(text, add_special_tokens=False)
    at = data.draw(st.integers(0, len(ids)))
    prompt_bytes = b"".join(token_text(tokenizer, token_id)[1] for token_id in ids[:at])
    whole_characters = prompt_bytes.decode(errors="ignore")
    expected = text[len(whole_characters) :] if at < len(ids) else ""
    assert "".join(streamed(tokenizer, ids[:at], [[i] for i in ids[at:]])) == expected


def test_a_character_that_the_prompt_began_and_nobody_completes_is_no_part_of_the_answer() -> None:
    tokenizer = byte_level()
    half, a = (tokenizer.convert_tokens_to_ids(letter) for letter in ("Ã", "a"))
    assert streamed(tokenizer, [half], [[a]]) == ["a", ""]
    assert streamed(tokenizer, [half], []) == [""]
    surrogate = [tokenizer.convert_tokens_to_ids(letter) for letter in "íł"]
    assert tokenizer.decode([*surrogate, a]) == "\ufffd\ufffda"
    assert streamed(tokenizer, surrogate, [[a]]) == ["a", ""]


def test_the_prompt_is_read_from_its_end_only() -> None:
    """So that a request costs the same whatever its prompt."""
    tokenizer = byte_level()

    class Counted(list[int]):
        reads = 0

        def __reversed__(self):  # type: ignore[no-untyped-def]
            for item in super().__reversed__():
                Counted.reads += 1
                yield item

    IncrementalDetokenizer(tokenizer, Counted([50] * 1000), True)
    assert Counted.reads <= 4
