"""The engine against `transformers.generate` on the CPU, and a full batch against one request, as ratios in one run.

    python bench/cpu_ratio.py --model .demo/SmolLM2-135M-Instruct.Q4_1.gguf

Both decode greedily with the same weights in the same dtype. The time of prefill is taken out: a run of `TOKENS + 1`
tokens less a run of one. Each side lives in a process of its own, the engine's with the large pages that `serve` gives
its engine process; runs alternate, so that a noisy machine hits both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOKENS = 96
BATCH = 32
PROMPT = list(range(100, 164))


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def ours(model: str, dtype: str) -> Callable[[int], float]:
    """Seconds of one decode step of the engine, by batch size."""
    from core import Engine, SamplingParams

    engine = Engine(model=model, dtype=dtype, max_total_tokens=16384)

    def seconds(batch_size: int, num_tokens: int) -> float:
        engine.flush_cache()
        prompts = [[token + i for token in PROMPT] for i in range(batch_size)]
        params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
        return timed(lambda: engine.generate(prompts, params))

    return lambda batch_size: (seconds(batch_size, TOKENS + 1) - seconds(batch_size, 1)) / TOKENS


def theirs(model: str, dtype: str) -> Callable[[int], float]:
    """Seconds of one decode step of transformers."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    path = Path(model)
    source: dict[str, Any] = {}
    if path.is_file():  # transformers would keep the weights quantised, which is another dtype
        source = {"gguf_file": path.name, "quantization_config": GgufConfig(dequantize=True)}
    folder = path.parent if path.is_file() else path
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), **source).eval()
    ids = torch.tensor([PROMPT])

    def seconds(num_tokens: int) -> float:
        options: dict[str, Any] = {"max_new_tokens": num_tokens, "min_new_tokens": num_tokens, "do_sample": False}
        with torch.inference_mode():
            return timed(lambda: loaded.generate(ids, attention_mask=torch.ones_like(ids), **options))

    return lambda batch_size: (seconds(TOKENS + 1) - seconds(1)) / TOKENS


class Side:
    """One of the two, in its own process: a batch size goes in, the seconds of a decode step come out."""

    def __init__(self, name: str, model: str, dtype: str) -> None:
        command = [sys.executable, __file__, "--model", model, "--dtype", dtype, "--side", name]
        extra = {"THP_MEM_ALLOC_ENABLE": "1"} if name == "ours" else {}
        self.process = subprocess.Popen(
            command, env={**os.environ, **extra}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def token_seconds(self, batch_size: int) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(batch_size, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def serve_side(name: str, model: str, dtype: str) -> None:
    step = {"ours": ours, "theirs": theirs}[name](model, dtype)
    for line in sys.stdin:
        print(step(int(line)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or GGUF file")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--side", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        serve_side(options.side, options.model, options.dtype[0])
        return
    print(
        f"{'dtype':>9} {'transformers':>13} {'engine':>9} {'ratio':>6} {f'batch {BATCH}':>9} {'gain':>6}   (ms a step)"
    )
    for dtype in options.dtype:
        reference, engine = Side("theirs", options.model, dtype), Side("ours", options.model, dtype)

        def once(reference: Side = reference, engine: Side = engine) -> tuple[float, float, float]:
            return reference.token_seconds(1), engine.token_seconds(1), engine.token_seconds(BATCH)

        once()
        runs = [once() for _ in range(options.repeat)]
        theirs_ms, alone, full = (statistics.median(column) * 1e3 for column in zip(*runs, strict=True))
        print(
            f"{dtype:>9} {theirs_ms:>13.1f} {alone:>9.1f} {theirs_ms / alone:>6.2f} {full:>9.1f} "
            f"{BATCH * alone / full:>6.1f}",
            flush=True,
        )
        reference.close()
        engine.close()


if __name__ == "__main__":
    main()
