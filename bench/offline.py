"""Throughput of the engine in-process, on the workloads of `workloads.py` with random weights.

    python bench/offline.py --model smollm2-135m --workload cpu
    python bench/offline.py --model llama-3.1-8b --workload single batch64 mixed prefill shared-prefix

Each workload runs once to warm up and twice for the figures; the better counts. The prefix cache is on, and emptied
before each run. Temperature 0.6, end-of-sequence ignored.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from workloads import ALL, MODELS, Workload, workload, write_model

from core import Engine, SamplingParams


def run(engine: Engine, work: Workload) -> float:
    """Seconds for one pass over a workload, from an empty prefix cache."""
    engine.flush_cache()
    params = [SamplingParams(temperature=0.6, max_tokens=num_out, ignore_eos=True) for _, num_out in work]
    start = time.perf_counter()
    results = engine.generate([prompt for prompt, _ in work], params)
    seconds = time.perf_counter() - start
    for result, (_, num_out) in zip(results, work, strict=True):
        assert len(result.token_ids) == num_out, "the engine did not draw what it was asked for"
    return seconds


def row(model: str, name: str, seconds: float, work: Workload) -> dict[str, Any]:
    """The figures of one workload."""
    num_in = sum(len(prompt) for prompt, _ in work)
    num_out = sum(length for _, length in work)
    return {
        "model": model,
        "workload": name,
        "requests": len(work),
        "seconds": round(seconds, 3),
        "input_tok_s": round(num_in / seconds, 1),
        "output_tok_s": round(num_out / seconds, 1),
        "total_tok_s": round((num_in + num_out) / seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", choices=list(MODELS), help="shapes; weights are random")
    parser.add_argument("--workload", nargs="+", default=["cpu"], choices=ALL, help="which, in this order")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of the engine")
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    options = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in options.set)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = write_model(options.model, Path(folder))
        with Engine(model=str(path), load_format="dummy", **settings) as engine:
            for name in options.workload:
                work = workload(name)
                run(engine, work)
                rows.append(row(options.model, name, min(run(engine, work) for _ in range(2)), work))
                print(json.dumps(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
