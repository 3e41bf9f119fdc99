"""What the front end's tests share: engines without a model, and a tokenizer of bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from core.config import SchedulerConfig
from core.managers.engine_core import EngineCore
from core.testing.echo_worker import EchoWorker

EOS = 256


@dataclass(frozen=True)
class EchoInfo:
    """What a front end reads of a `ModelInfo`."""

    eos_token_ids: tuple[int, ...] = (EOS,)
    generation_defaults: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def info() -> EchoInfo:
    return EchoInfo()


@pytest.fixture(scope="session")
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Token i below 256 is one byte of UTF-8, in no particular order; 256 ends a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<eos>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


@pytest.fixture
def build_echo() -> Any:
    """Makes a picklable builder of an engine that repeats each prompt; arguments as `EchoWorker` takes them."""

    def make(**worker: Any) -> partial[EngineCore]:
        return partial(EngineCore, EchoWorker(**worker), SchedulerConfig(max_running_requests=64))

    return make
