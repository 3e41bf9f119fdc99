"""Byte-level tokenizers, special tokens, chat templates, and what a file must have for them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

from core.errors import ModelError
from plugin_loader_gguf.loader import GGUFLoader
from plugin_loader_gguf.pre_tokenizers import RULES

Write = Callable[..., Path]
Open = Callable[[Path], GGUFLoader]

TEXTS = [
    "Hello world, it's I'LL we've",
    "  two  spaces\n\n\tTab \r\n trail  ",
    "def f(x):\n    return x**2  # ok\n",
    "日本語テキスト 你好 ñandú É Ünïcödé",
    "🙂🙃👩‍👩‍👧 ok",
    "a1b22c333 4444 3.14159 x=1e-9",
    "HelloWorld camelCase ABCdef $$5+<=>^|~",
    "",
    " ",
    "<|im_start|>user\nhi<|im_end|>\n<tool>x</tool>",
]
SPECIALS = {"<|endoftext|>": 3, "<|im_start|>": 3, "<|im_end|>": 3, "<tool>": 4, "[PAD]": 5}


@functools.cache
def trained() -> tuple[list[str], list[str]]:
    """Tokens and merges of a small byte-level vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    vocab = tokenizer.get_vocab()
    merges = [" ".join(pair) for pair in _model_of(tokenizer)["merges"]]
    return sorted(vocab, key=lambda token: vocab[token]), merges


def _model_of(tokenizer: Tokenizer) -> dict[str, Any]:
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    return model


def byte_level(pre: str | None = "gpt-2", **extra: Any) -> dict[str, Any]:
    """Metadata of a byte-level tokenizer; a key that is None is left out."""
    tokens, merges = trained()
    metadata = {
        "model": "gpt2",
        "pre": pre,
        "tokens": [*tokens, *SPECIALS],
        "token_type": [1] * len(tokens) + list(SPECIALS.values()),
        "merges": merges,
        "eos_token_id": len(tokens) + 2,
        "bos_token_id": len(tokens) + 1,
        "padding_token_id": len(tokens),
        **extra,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in metadata.items() if value is not None}


# What each rule makes of a text, after the models' own tokenizer.json; "Ġ" is a space, "Ċ" a line feed.
PIECES = [
    ("gpt-2", "I'll I'LL a 1234", ["I", "'ll", "ĠI", "'", "LL", "Ġa", "Ġ1234"]),
    ("gpt-2", "a\n\nb  c", ["a", "Ċ", "Ċ", "b", "Ġ", "Ġc"]),
    ("smollm", "I'll a 1234", ["I", "'ll", "Ġa", "Ġ", "1", "2", "3", "4"]),
    ("smollm", "x½ Ⅷ", ["x", "Â½", "Ġ", "âħ§"]),
    ("starcoder", "a12", ["a", "1", "2"]),
    ("qwen2", "I'LL a 12", ["I", "'LL", "Ġa", "Ġ", "1", "2"]),
    ("qwen2", "a\n\n b  c", ["a", "ĊĊ", "Ġb", "Ġ", "Ġc"]),
    ("qwen2", "$x (y)\n", ["$x", "Ġ(", "y", ")Ċ"]),
    ("deepseek-r1-qwen", "a 12", ["a", "Ġ", "1", "2"]),
    ("llama-bpe", "I'LL 12345", ["I", "'LL", "Ġ", "123", "45"]),
    ("llama3", "a\n\n b", ["a", "ĊĊ", "Ġb"]),
    ("smaug-bpe", "a 1234", ["a", "Ġ", "123", "4"]),
    ("tekken", "HelloWorld ABC 12 a/\n", ["Hello", "World", "ĠABC", "Ġ", "1", "2", "Ġa", "/Ċ"]),
    ("default", "a$$5 12345", ["a", "$$", "5", "Ġ", "123", "45"]),
]


@pytest.mark.parametrize(("pre", "text", "pieces"), PIECES)
def test_a_text_is_cut_as_the_models_were_trained(
    write_gguf: Write, open_loader: Open, pre: str, text: str, pieces: list[str]
) -> None:
    backend = open_loader(write_gguf(byte_level(pre))).load_tokenizer().backend_tokenizer
    assert [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(text)] == pieces


def test_every_rule_has_a_case() -> None:
    assert {pre for pre, _, _ in PIECES} >= RULES.keys() - {"llama-v3", "olmo", "refact"}


@pytest.mark.parametrize("pre", RULES)
def test_texts_come_back_whole(write_gguf: Write, open_loader: Open, pre: str) -> None:
    tokenizer = open_loader(write_gguf(byte_level(pre))).load_tokenizer()
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


@pytest.mark.parametrize("pre", ["gpt-2", "qwen2", "llama-bpe", "smaug-bpe", "tekken"])
def test_ids_equal_those_of_transformers_own_reading(write_gguf: Write, open_loader: Open, pre: str) -> None:
    path = write_gguf({"llama.block_count": 1, **byte_level(pre, add_bos_token=False)})
    expected = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    got = open_loader(path).load_tokenizer()
    for text in TEXTS:
        assert got.encode(text) == expected.encode(text)
    for name in ("bos_token", "eos_token", "pad_token"):
        assert getattr(got, name) == getattr(expected, name)
    assert len(got) == len(expected)


def test_qwen_composes_characters_first(write_gguf: Write, open_loader: Open) -> None:
    composed, decomposed = "\u00e9", "e\u0301"
    qwen = open_loader(write_gguf(byte_level("qwen2"))).load_tokenizer()
    assert qwen.encode(decomposed) == qwen.encode(composed)
    gpt2 = open_loader(write_gguf(byte_level("gpt-2"), name="other.gguf")).load_tokenizer()
    assert gpt2.encode(decomposed) != gpt2.encode(composed)


def test_llama3_takes_a_whole_token_without_merges(write_gguf: Write, open_loader: Open) -> None:
    tokens, _ = trained()
    added = byte_level("llama-bpe", tokens=[*tokens, *SPECIALS, "Ġquux"], add_bos_token=False)
    added["tokenizer.ggml.token_type"].append(1)
    tokenizer = open_loader(write_gguf(added)).load_tokenizer()
    assert tokenizer.encode(" quux") == [len(tokens) + len(SPECIALS)]
    assert len(tokenizer.encode(" quuxes")) > 1


def test_special_tokens_are_found_whole_and_can_be_left_out(write_gguf: Write, open_loader: Open) -> None:
    tokens, _ = trained()
    tokenizer = open_loader(write_gguf(byte_level())).load_tokenizer()
    first = len(tokens)
    ids = tokenizer.encode("<|im_start|>a<|im_end|><tool>")
    assert [ids[0], *ids[-2:]] == [first + 1, first + 2, first + 3]
    # A token that the user defined is text; an unused one is not looked for.
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a<tool>"
    assert first + 4 not in tokenizer.encode("[PAD]")
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (first + 1, first + 2, first)
    assert len(tokenizer) == len(tokens) + len(SPECIALS)


def test_a_token_that_the_file_names_is_special_whatever_its_type(write_gguf: Write, open_loader: Open) -> None:
    tokens, _ = trained()
    metadata = byte_level(token_type=[1] * (len(tokens) + len(SPECIALS)))
    tokenizer = open_loader(write_gguf(metadata)).load_tokenizer()
    assert tokenizer.decode(tokenizer.encode("a<|im_end|>"), skip_special_tokens=True) == "a"


@pytest.mark.parametrize(
    ("pre", "extra", "begin", "end"),
    [
        ("gpt-2", {}, 0, 0),
        ("gpt-2", {"add_bos_token": True}, 1, 0),
        ("gpt-2", {"add_bos_token": True, "add_eos_token": True}, 1, 1),
        ("llama-bpe", {}, 1, 0),
        ("llama-bpe", {"add_bos_token": False}, 0, 0),
        ("tekken", {}, 1, 0),
        ("qwen2", {"add_bos_token": False}, 0, 0),
    ],
)
def test_begin_and_end_tokens(
    write_gguf: Write, open_loader: Open, pre: str, extra: dict[str, bool], begin: int, end: int
) -> None:
    tokenizer = open_loader(write_gguf(byte_level(pre, **extra))).load_tokenizer()
    plain = tokenizer.encode("Hello", add_special_tokens=False)
    expected = [tokenizer.bos_token_id] * begin + plain + [tokenizer.eos_token_id] * end
    assert tokenizer.encode("Hello") == expected


def test_a_prefix_space_is_added_if_the_file_says_so(write_gguf: Write, open_loader: Open) -> None:
    tokenizer = open_loader(write_gguf(byte_level(add_space_prefix=True))).load_tokenizer()
    assert tokenizer.encode("Hello") == tokenizer.encode(" Hello")


def test_the_chat_template_is_the_file_s(write_gguf: Write, open_loader: Open) -> None:
    one = {"tokenizer.chat_template": "{{ messages[0].content }}!"}
    tokenizer = open_loader(write_gguf({**byte_level(), **one})).load_tokenizer()
    assert tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False) == "Hi!"
    several = {**one, "tokenizer.chat_templates": ["tool_use"], "tokenizer.chat_template.tool_use": "tools"}
    tokenizer = open_loader(write_gguf({**byte_level(), **several}, name="several.gguf")).load_tokenizer()
    assert tokenizer.chat_template == {"default": "{{ messages[0].content }}!", "tool_use": "tools"}
    assert open_loader(write_gguf(byte_level(), name="none.gguf")).load_tokenizer().chat_template is None


def test_generation_defaults_are_the_file_s(write_gguf: Write, open_loader: Open) -> None:
    tokens, _ = trained()
    first = len(tokens)
    metadata = {
        **byte_level(eot_token_id=5),
        "general.sampling.temp": 0.5,
        "general.sampling.top_k": 20,
        "general.sampling.penalty_repeat": 1.5,
    }
    assert open_loader(write_gguf(metadata)).load_generation_config() == {
        # The one the file names, then the others that end an answer or a document.
        "eos_token_id": [first + 2, 5, first],
        "bos_token_id": first + 1,
        "pad_token_id": first,
        "temperature": 0.5,
        "top_k": 20,
        "repetition_penalty": 1.5,
    }
    assert open_loader(write_gguf({}, name="bare.gguf")).load_generation_config() == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pre": "acme-9"}, "pre-tokenizer 'acme-9', which is not known here; known are deepseek-r1-qwen, default"),
        ({"model": "bert"}, "of the kind 'bert'; known are gpt2, llama"),
        ({"tokens": None}, "has no tokenizer"),
        ({"merges": None}, r"without tokenizer\.ggml\.merges"),
        ({"merges": ["zz yy"]}, "merges that do not fit"),
        ({"token_type": [1, 1]}, "but 2 token types"),
        ({"eos_token_id": 10_000}, "eos_token_id 10000, but only"),
        ({"bos_token_id": None, "add_bos_token": True}, "wants a bos token"),
        ({"model": "llama"}, r"needs a tokenizer\.ggml\.scores"),
    ],
)
def test_what_a_tokenizer_cannot_be_built_from_is_refused(
    write_gguf: Write, open_loader: Open, changes: dict[str, Any], said: str
) -> None:
    loader = open_loader(write_gguf(byte_level(**changes)))
    with pytest.raises(ModelError, match=said):
        loader.load_tokenizer()


def test_a_file_without_the_name_of_a_rule_gets_the_default(write_gguf: Write, open_loader: Open) -> None:
    tokenizer = open_loader(write_gguf(byte_level(None))).load_tokenizer()
    default = open_loader(write_gguf(byte_level("default"), name="default.gguf")).load_tokenizer()
    assert tokenizer.backend_tokenizer.to_str() == default.backend_tokenizer.to_str()
