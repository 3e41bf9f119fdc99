"""SentencePiece BPE with byte fallback (`tokenizer.ggml.model` = llama): the scheme of Llama 2 and Mistral 7B.

Built as the `tokenizer.json` of those models is: every stretch of text between special tokens gets the leading space,
spaces become U+2581, and a character without a token becomes its bytes.
"""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, normalizers
from tokenizers.models import BPE

from core.errors import ModelError
from plugin_loader_gguf.gguf_file import GGUFFile
from plugin_loader_gguf.vocabulary import TokenType, Vocabulary

SPACE = "\u2581"


def build_sentencepiece(file: GGUFFile, vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer without its special tokens. Raises `ModelError` if the file lacks the scores."""
    scores = file.metadata.get("tokenizer.ggml.scores")
    if scores is None or len(scores) != len(vocabulary.tokens):
        raise ModelError(f"{file.path} needs a tokenizer.ggml.scores for each of its {len(vocabulary.tokens)} tokens")
    model = BPE(
        vocabulary.ids,
        merges_of(vocabulary, scores),
        unk_token=vocabulary.text(vocabulary.unk_token_id),
        fuse_unk=True,
        byte_fallback=True,
    )
    add_prefix = bool(file.metadata.get("tokenizer.ggml.add_space_prefix", True))
    tokenizer = Tokenizer(model)
    spaces = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if add_prefix else spaces
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if add_prefix:
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def merges_of(vocabulary: Vocabulary, scores: list[float]) -> list[tuple[str, str]]:
    """The merges that a SentencePiece model implies, best first.

    SentencePiece joins the two neighbours whose union has the highest score. So the pairs that make up a token rank as
    its score does; among the pairs of one token the order follows the lower ids, as these exist earlier.
    """
    ids = {
        token: index
        for index, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if kind in (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
    }
    ranked = sorted((token for token in ids if len(token) > 1), key=lambda token: -scores[ids[token]])
    merges: list[tuple[str, str]] = []
    for token in ranked:
        cuts = ((token[:at], token[at:]) for at in range(1, len(token)))
        pairs = [(left, right) for left, right in cuts if left in ids and right in ids]
        merges += sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    return merges
