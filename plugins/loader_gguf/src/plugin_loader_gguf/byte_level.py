"""Byte-level BPE (`tokenizer.ggml.model` = gpt2): GPT-2's scheme, with merges in the file."""

from __future__ import annotations

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE

from core.errors import ModelError
from plugin_loader_gguf.gguf_file import GGUFFile
from plugin_loader_gguf.pre_tokenizers import RULES, PreTokenizerRules
from plugin_loader_gguf.vocabulary import Vocabulary


def rules_of(file: GGUFFile) -> PreTokenizerRules:
    """The rules that the file names. Raises `ModelError` for an unknown name: the ids would be subtly wrong."""
    name = file.metadata.get("tokenizer.ggml.pre", "default")
    if name not in RULES:
        known = ", ".join(sorted(RULES))
        raise ModelError(
            f"{file.path} has the pre-tokenizer {name!r}, which is not known here; known are {known}. "
            "Give another tokenizer with --tokenizer"
        )
    return RULES[name]


def build_byte_level(file: GGUFFile, vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer without its special tokens. Raises `ModelError` if its parts do not fit together."""
    rules = rules_of(file)
    lines = file.metadata.get("tokenizer.ggml.merges")
    if lines is None:
        raise ModelError(f"{file.path} has a byte-level tokenizer without tokenizer.ggml.merges; convert it again")
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    try:
        model = BPE(vocabulary.ids, merges, ignore_merges=rules.ignore_merges)
    except Exception as error:
        raise ModelError(f"{file.path} has merges that do not fit its tokens: {error}") from error
    tokenizer = Tokenizer(model)
    if (normalizer := rules.normalizer()) is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = rules.pre_tokenizer(bool(file.metadata.get("tokenizer.ggml.add_space_prefix", False)))
    tokenizer.decoder = ByteLevelDecoder()
    return tokenizer
