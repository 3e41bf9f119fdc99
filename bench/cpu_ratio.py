"""The engine against `transformers.generate` on the CPU, and a full batch against one request, as ratios in one run.

    python bench/cpu_ratio.py --model .demo/SmolLM2-135M-Instruct.Q4_1.gguf

Both decode the same greedy tokens of the same weights in the same dtype. The time of prefill is taken out: a run of
`TOKENS + 1` tokens less a run of one. Runs of the two engines alternate, so that a noisy machine hits both.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from core import Engine, SamplingParams

TOKENS = 96
BATCH = 32
PROMPT = list(range(100, 164))


def timed(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Ours:
    def __init__(self, model: str, dtype: str) -> None:
        self.engine = Engine(model=model, dtype=dtype, max_total_tokens=16384)

    def seconds(self, batch_size: int, num_tokens: int) -> float:
        self.engine.flush_cache()
        prompts = [[token + i for token in PROMPT] for i in range(batch_size)]
        params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
        return timed(lambda: self.engine.generate(prompts, params))

    def token_seconds(self, batch_size: int) -> float:
        """Seconds of one decode step."""
        return (self.seconds(batch_size, TOKENS + 1) - self.seconds(batch_size, 1)) / TOKENS


class Transformers:
    def __init__(self, model: str, dtype: str) -> None:
        path = Path(model)
        source = {"gguf_file": path.name} if path.is_file() else {}
        folder = path.parent if path.is_file() else path
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), **source).eval()

    def seconds(self, num_tokens: int) -> float:
        ids = torch.tensor([PROMPT])
        options: dict[str, Any] = {"max_new_tokens": num_tokens, "min_new_tokens": num_tokens, "do_sample": False}
        with torch.inference_mode():
            return timed(lambda: self.model.generate(ids, attention_mask=torch.ones_like(ids), **options))

    def token_seconds(self) -> float:
        return (self.seconds(TOKENS + 1) - self.seconds(1)) / TOKENS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or GGUF file")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print(
        f"{'dtype':>9} {'transformers':>13} {'engine':>9} {'ratio':>6} {f'batch {BATCH}':>9} {'gain':>6}   (ms a step)"
    )
    for dtype in options.dtype:
        theirs, ours = Transformers(options.model, dtype), Ours(options.model, dtype)
        theirs.token_seconds(), ours.token_seconds(1), ours.token_seconds(BATCH)
        runs = [
            (theirs.token_seconds(), ours.token_seconds(1), ours.token_seconds(BATCH)) for _ in range(options.repeat)
        ]
        reference, alone, full = (statistics.median(column) * 1e3 for column in zip(*runs, strict=True))
        print(
            f"{dtype:>9} {reference:>13.1f} {alone:>9.1f} {reference / alone:>6.2f} {full:>9.1f} "
            f"{BATCH * alone / full:>6.1f}",
            flush=True,
        )
        ours.engine.shutdown()


if __name__ == "__main__":
    main()
