"""The demo model: read as the gguf package and transformers read it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerBase
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from core.loading.weight_loader import WeightLoaderContext
from core.managers.detokenizer import IncrementalDetokenizer
from core.managers.token_text import token_table, token_text
from core.specs import NoOptions
from plugin_loader_gguf.gguf_file import read_gguf
from plugin_loader_gguf.loader import GGUFLoader

Open = Callable[[Path], GGUFLoader]

TEXTS = [
    "Hello world, it's I'LL we've don't",
    "  two  spaces\n\n\tTab \r\n trail  ",
    "def f(x):\n    return x**2  # ok\n",
    "日本語テキスト 你好 ñandú e\u0301 Ünïcödé",
    "🙂🙃👩‍👩‍👧 ok",
    "a1b22c333 4444 3.14159 x=1e-9 ١٢٣ ½ Ⅷ",
    "<|im_start|>user\nhi<|im_end|>\n<repo_name><|endoftext|>",
    "",
    " ",
    "x" * 500,
    "\u0000\u007f\u00a0\u2003\ufffd\ufeff",
]


@pytest.fixture(scope="module")
def tokenizer(demo_model: Path) -> PreTrainedTokenizerBase:
    return GGUFLoader(WeightLoaderContext(demo_model, NoOptions())).load_tokenizer()


def test_the_header_is_what_the_gguf_package_reads(demo_model: Path) -> None:
    file, reader = read_gguf(demo_model), gguf.GGUFReader(demo_model)
    assert [*file.metadata] == [key for key in reader.fields if not key.startswith("GGUF.")]
    for key, value in file.metadata.items():
        field = reader.fields[key]
        if isinstance(value, list):
            assert len(value) == len(field.data)
            assert value[-100:] == field.contents(slice(-100, None))
        else:
            assert value == field.contents()
    assert {name: (info.offset, info.num_bytes) for name, info in file.tensors.items()} == {
        tensor.name: (tensor.data_offset, tensor.n_bytes) for tensor in reader.tensors
    }


def test_weights_equal_transformers_own_reading_to_the_last_bit(demo_model: Path, open_loader: Open) -> None:
    """Of the first layers: transformers takes long to map the names of them all."""
    loader = open_loader(demo_model)
    config = loader.load_config()
    with torch.device("meta"):
        whole = LlamaForCausalLM(config)
        config.num_hidden_layers = 2
        beginning = LlamaForCausalLM(config)
    expected = load_gguf_checkpoint(demo_model, return_tensors=True, model_to_load=beginning)["tensors"]
    names = set()
    for name, tensor in loader.iter_weights():
        names.add(name)
        if name in expected:
            # In numpy: comparing with all of torch's threads takes long where other work has the cores.
            assert np.array_equal(tensor.numpy(), expected[name].numpy()), name
    assert expected.keys() == beginning.state_dict().keys() - {"lm_head.weight"}
    assert names == whole.state_dict().keys() - {"lm_head.weight"}


def test_ids_equal_transformers_own_reading_with_the_model_s_digits(
    demo_model: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    """transformers takes `smollm` for GPT-2's rule; the model's own tokenizer.json cuts off each digit first."""
    expected = AutoTokenizer.from_pretrained(demo_model.parent, gguf_file=demo_model.name)
    expected.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    generator = random.Random(0)
    noise = ["".join(chr(generator.choice((32, 65, 0x30, 0xE0, 0x4E00)) + generator.randrange(32)) for _ in range(40))]
    for text in TEXTS + noise * 20:
        ids = tokenizer.encode(text)
        assert ids == expected.encode(text)
        assert tokenizer.decode(ids) == text
    assert tokenizer.chat_template == expected.chat_template
    assert tokenizer.special_tokens_map == expected.special_tokens_map
    assert tokenizer.added_tokens_decoder == expected.added_tokens_decoder


def test_end_ids(demo_model: Path, open_loader: Open) -> None:
    assert open_loader(demo_model).load_generation_config() == {
        "eos_token_id": [2, 0],
        "bos_token_id": 1,
        "pad_token_id": 2,
    }


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_random_tokens_stream_to_what_the_library_decodes(
    tokenizer: PreTrainedTokenizerBase, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=60))
    skip = data.draw(st.booleans())
    detokenizer = IncrementalDetokenizer(tokenizer, [], skip)
    assert token_table(tokenizer).exact
    streamed = "".join(detokenizer.push([token_id]) for token_id in ids) + detokenizer.flush()
    assert streamed == tokenizer.decode(ids, skip_special_tokens=skip)
    assert b"".join(token_text(tokenizer, token_id)[1] for token_id in ids).decode(errors="replace") == (
        tokenizer.decode(ids)
    )
