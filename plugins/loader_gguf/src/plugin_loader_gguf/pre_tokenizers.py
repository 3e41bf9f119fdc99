"""How byte-level vocabularies cut a text before merging: what `tokenizer.ggml.pre` names.

The names are llama.cpp's (`llama-vocab.cpp`); the rules are those of the models' own `tokenizer.json`, which
llama.cpp's expressions restate. Where the two differ (Unicode normalisation, which llama.cpp leaves out) the model's
own is followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tokenizers import Regex
from tokenizers.normalizers import NFC, Normalizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

_LLAMA3_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT: Final = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN_SPLIT: Final = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEFAULT_PUNCTUATION: Final = r"[\p{P}\$\+<=>\^~\|]+"
_THREE_DIGITS: Final = r"[0-9][0-9][0-9]"
_NUMBERS: Final = r"\p{N}+"


@dataclass(frozen=True, slots=True)
class PreTokenizerRules:
    """How a text is cut.

    Attributes:
        splits: regular expressions, one after the other; what matches and what lies between becomes a piece each.
        digits: every digit is a piece of its own.
        gpt2: at last GPT-2's expression is applied; else the pieces stay as the splits made them.
        nfc: the text is first brought to Unicode's composed form.
        ignore_merges: a piece that is a token is taken whole, even if no merges lead to it.
        add_bos: a prompt begins with the begin-of-sequence token, unless the file says otherwise.
    """

    splits: tuple[str, ...] = ()
    digits: bool = False
    gpt2: bool = True
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False

    def normalizer(self) -> Normalizer | None:
        """The normaliser, or None."""
        return NFC() if self.nfc else None

    def pre_tokenizer(self, add_prefix_space: bool) -> PreTokenizer:
        """The pre-tokenizer. It ends in the byte alphabet."""
        steps: list[PreTokenizer] = [Split(Regex(pattern), behavior="isolated") for pattern in self.splits]
        if self.digits:
            steps.append(Digits(individual_digits=True))
        steps.append(ByteLevel(add_prefix_space=add_prefix_space, use_regex=self.gpt2))
        return Sequence(steps) if len(steps) > 1 else steps[0]


_GPT2: Final = PreTokenizerRules()
_DIGITS: Final = PreTokenizerRules(digits=True)
_LLAMA3: Final = PreTokenizerRules(splits=(_LLAMA3_SPLIT,), gpt2=False, ignore_merges=True, add_bos=True)
_QWEN2: Final = PreTokenizerRules(splits=(_QWEN2_SPLIT,), gpt2=False, nfc=True)

RULES: Final = {
    # llama.cpp's own rule for files that do not say; nearly GPT-2's, but cuts punctuation off and numbers in threes.
    "default": PreTokenizerRules(splits=(_DEFAULT_PUNCTUATION, _NUMBERS, _THREE_DIGITS)),
    "gpt-2": _GPT2,
    "olmo": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "smaug-bpe": PreTokenizerRules(splits=(_LLAMA3_SPLIT,), gpt2=False),
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "tekken": PreTokenizerRules(splits=(_TEKKEN_SPLIT,), gpt2=False, ignore_merges=True, add_bos=True),
}
