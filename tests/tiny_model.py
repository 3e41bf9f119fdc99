"""A random Llama of a few thousand weights with a byte-level tokenizer and a chat template, as a folder."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

BOS, EOS = 0, 1
CHAT_TEMPLATE = (
    "{% for message in messages %}<s>{{ message.role }}\n{{ message.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def tokenizer(chat_template: str | None = CHAT_TEMPLATE) -> PreTrainedTokenizerFast:
    """One token a byte, after two special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": BOS, "</s>": EOS, **{symbol: number for number, symbol in enumerate(alphabet, start=2)}}
    bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>")
    fast.chat_template = chat_template
    return fast


def save_tiny_model(folder: Path, chat_template: str | None = CHAT_TEMPLATE) -> LlamaForCausalLM:
    """Write model and tokenizer to `folder`; the model in float32."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.5,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    tokenizer(chat_template).save_pretrained(folder)
    return model
