"""The demo model's greedy answers equal transformers', however they are scheduled, cached, chunked and paged.

By default a part of the prompts, which is what fits a test run; `pytest tests/test_demo_model.py --all-prompts` runs
all of them through every variant.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from reference import Checked, check
from transformers import AutoModelForCausalLM

from core import Engine, SamplingParams

ROOT = Path(__file__).parent.parent
NEW_TOKENS = 64
LENGTHS = [
    *(
        1,
        2,
        3,
        4,
        5,
        7,
        8,
        9,
        12,
        15,
        16,
        17,
        18,
        20,
        24,
        28,
        31,
        32,
        33,
        36,
        40,
        44,
        47,
        48,
        49,
        52,
        56,
        60,
        63,
        64,
        65,
    ),
    *(72, 80, 95, 96, 97, 112, 127, 128, 129, 160, 192, 255, 256, 257, 320, 400, 511, 512, 700, 1000, 1500),
]
TEXTS = (
    "Ἐν ἀρχῇ ἦν ὁ λόγος. Der schnelle braune Fuchs springt über den faulen Hund. 敏捷的棕色狐狸跳过了懒狗。 "
    "Le cœur a ses raisons que la raison ne connaît point. すばしっこい茶色の狐。 12345 + 67890 = 80235; π ≈ 3.14159. "
    "She said that the harbour was quiet that night, and nobody believed her until the morning came. "
)


@dataclass(frozen=True)
class Answered:
    """A prompt, and the answer that the batched engine gave and transformers agrees with."""

    prompt: list[int]
    checked: Checked


def make_prompts(engine: Engine, lengths: list[int]) -> list[list[int]]:
    """Prompts of these lengths from prose, code and several scripts."""
    corpus = [TEXTS * 3, (ROOT / "LICENSE").read_text(), (ROOT / "tests" / "test_demo_model.py").read_text()]
    tokens = [engine.encode(text) for text in corpus]
    prompts = []
    for i, length in enumerate(lengths):
        source = tokens[i % 3] if length < len(tokens[i % 3]) // 2 else tokens[1]
        start = (37 * i) % (len(source) - length)
        prompts.append(source[start : start + length])
    return prompts


def answers(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    params = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
    return [result.token_ids for result in engine.generate(prompts, params)]


def engine_for(path: Path, **settings: object) -> Engine:
    return Engine(
        model=str(path), dtype="float32", max_total_tokens=settings.pop("max_total_tokens", 32768), **settings
    )


@pytest.fixture(scope="module")
def answered(demo_model: Path, request: pytest.FixtureRequest) -> list[Answered]:
    """All prompts, answered together and checked against transformers."""
    lengths = LENGTHS if request.config.getoption("--all-prompts") else [n for n in LENGTHS if n < 300][::3]
    with engine_for(demo_model) as engine:
        prompts = make_prompts(engine, lengths)
        results = answers(engine, prompts)
    model = AutoModelForCausalLM.from_pretrained(demo_model.parent, gguf_file=demo_model.name, dtype=torch.float32)
    model.eval()
    return [Answered(p, check(model, p, answer)) for p, answer in zip(prompts, results, strict=True)]


def compare(answered: list[Answered], results: list[list[int]]) -> None:
    for item, answer in zip(answered, results, strict=True):
        item.checked.assert_same(answer)


def few(answered: list[Answered], request: pytest.FixtureRequest, most: int, longest: int = 1 << 30) -> list[Answered]:
    """All prompts if asked for, else some."""
    if request.config.getoption("--all-prompts"):
        return answered
    return [item for item in answered if len(item.prompt) <= longest][:most]


def test_all_together(answered: list[Answered]) -> None:
    assert answered, "the fixture compared every prompt with transformers"


def test_alone_and_again_with_a_warm_cache(
    answered: list[Answered], demo_model: Path, request: pytest.FixtureRequest
) -> None:
    some = few(answered, request, 6)
    with engine_for(demo_model) as engine:
        for _ in ("cold", "warm"):
            compare(some, [answers(engine, [item.prompt])[0] for item in some])
        compare(some, answers(engine, [item.prompt for item in some]))
        assert engine.stats.cached_tokens > 0


@pytest.mark.parametrize("chunk", [1, 15, 16, 17, 64])
def test_chunks(answered: list[Answered], demo_model: Path, chunk: int, request: pytest.FixtureRequest) -> None:
    some = few(answered, request, 8, longest=40 if chunk == 1 else 130)
    with engine_for(demo_model, chunked_prefill_size=chunk) as engine:
        compare(some, answers(engine, [item.prompt for item in some]))


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("overlap", [True, False])
def test_page_sizes_and_overlap(
    answered: list[Answered], demo_model: Path, page_size: int, overlap: bool, request: pytest.FixtureRequest
) -> None:
    some = few(answered, request, 8)
    with engine_for(demo_model, page_size=page_size, disable_overlap_schedule=not overlap) as engine:
        compare(some, answers(engine, [item.prompt for item in some]))


def test_a_pool_so_small_that_requests_are_retracted(
    answered: list[Answered], demo_model: Path, request: pytest.FixtureRequest
) -> None:
    some = few(answered, request, 12)
    tokens = max(len(item.prompt) for item in some) + NEW_TOKENS + 100
    with engine_for(demo_model, max_total_tokens=tokens, new_token_ratio=0.02) as engine:
        compare(some, answers(engine, [item.prompt for item in some]))
        assert engine.stats.num_retractions > 0
