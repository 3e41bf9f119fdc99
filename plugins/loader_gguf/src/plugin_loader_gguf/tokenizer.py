"""Builds the tokenizer that a file describes, without a detour over other formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from core.errors import ModelError
from plugin_loader_gguf.byte_level import build_byte_level, rules_of
from plugin_loader_gguf.gguf_file import GGUFFile
from plugin_loader_gguf.sentencepiece import build_sentencepiece
from plugin_loader_gguf.vocabulary import Vocabulary, read_vocabulary

_TEMPLATE: Final = "tokenizer.chat_template"


def _byte_level_adds_bos(file: GGUFFile) -> bool:
    return rules_of(file).add_bos


def _sentencepiece_adds_bos(file: GGUFFile) -> bool:
    return True


_Build = Callable[[GGUFFile, Vocabulary], Tokenizer]
_AddsBos = Callable[[GGUFFile], bool]
_MODELS: Final[dict[str, tuple[_Build, _AddsBos]]] = {
    "gpt2": (build_byte_level, _byte_level_adds_bos),
    "llama": (build_sentencepiece, _sentencepiece_adds_bos),
}


def build_tokenizer(file: GGUFFile) -> PreTrainedTokenizerBase:
    """The tokenizer with its special tokens and chat template. Raises `ModelError` if it is none that is known here."""
    vocabulary = read_vocabulary(file)
    model = file.metadata.get("tokenizer.ggml.model")
    if model not in _MODELS:
        known = ", ".join(sorted(_MODELS))
        raise ModelError(
            f"{file.path} has a tokenizer of the kind {model!r}; known are {known}. Give another one with --tokenizer"
        )
    build, adds_bos = _MODELS[model]
    tokenizer = build(file, vocabulary)
    tokenizer.add_tokens(vocabulary.added_tokens())
    add_bos = file.metadata.get("tokenizer.ggml.add_bos_token", adds_bos(file))
    add_eos = file.metadata.get("tokenizer.ggml.add_eos_token", False)
    tokenizer.post_processor = _post_processor(file, vocabulary, add_bos, add_eos)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=vocabulary.text(vocabulary.bos_token_id),
        eos_token=vocabulary.text(vocabulary.eos_token_id),
        unk_token=vocabulary.text(vocabulary.unk_token_id),
        pad_token=vocabulary.text(vocabulary.pad_token_id),
        chat_template=_chat_template(file),
        clean_up_tokenization_spaces=False,
    )


def _post_processor(file: GGUFFile, vocabulary: Vocabulary, add_bos: bool, add_eos: bool) -> TemplateProcessing:
    """Adds the begin and end tokens that the file wants around a prompt."""
    around: list[tuple[str, int] | None] = [None, None]
    wanted = ((add_bos, vocabulary.bos_token_id, "bos"), (add_eos, vocabulary.eos_token_id, "eos"))
    for place, (add, token_id, name) in enumerate(wanted):
        if not add:
            continue
        if token_id is None:
            raise ModelError(f"{file.path} wants a {name} token around prompts but does not say which it is")
        around[place] = (vocabulary.tokens[token_id], token_id)
    begin, end = ([token[0]] if token else [] for token in around)
    return TemplateProcessing(
        single=[*begin, "$A", *end],
        pair=[*begin, "$A", *end, *begin, "$B", *end],
        special_tokens=[token for token in dict.fromkeys(around) if token],
    )


def _chat_template(file: GGUFFile) -> str | dict[str, str] | None:
    """The template, or all of them by name if there are several, or None."""
    template: str | None = file.metadata.get(_TEMPLATE)
    names: list[str] = file.metadata.get("tokenizer.chat_templates", [])
    others = {name: file.metadata.get(f"{_TEMPLATE}.{name}") for name in names}
    named = {name: text for name, text in others.items() if isinstance(text, str)}
    if not named:
        return template
    return named if template is None else {**named, "default": template}
