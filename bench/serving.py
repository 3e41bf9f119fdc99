"""Latency and throughput of an OpenAI-compatible endpoint under load.

    python bench/serving.py --url http://127.0.0.1:30000 --requests 64 --concurrency 8
    python bench/serving.py --requests 200 --request-rate 4 --input-len 512 --output-len 256 --json report.json

Requests are streamed completions over random token ids. They arrive as soon as one of `--concurrency` places is free,
or at random times with a mean of `--request-rate` a second (Poisson arrivals). Needs httpx and tqdm.

    TTFT   time to first token: from sending the request to the first chunk with text or tokens
    ITL    inter-token latency: between two chunks
    E2E    from sending the request to its last chunk
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tqdm import tqdm


@dataclass
class Trace:
    """What one request saw; times in seconds."""

    ttft: float = 0.0
    e2e: float = 0.0
    itl: list[float] = field(default_factory=list)
    output_tokens: int = 0
    error: str | None = None


async def stream(client: httpx.AsyncClient, body: dict[str, Any]) -> Trace:
    """Send one request and time its chunks."""
    trace, start = Trace(), time.perf_counter()
    last = start
    try:
        async with client.stream("POST", "/v1/completions", json=body) as response:
            if response.status_code != 200:
                trace.error = f"HTTP {response.status_code}: {(await response.aread()).decode()[:200]}"
                return trace
            async for line in response.aiter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    trace.error = str(event["error"])
                    return trace
                if usage := event.get("usage"):
                    trace.output_tokens = usage["completion_tokens"]
                if not event.get("choices") or event["choices"][0].get("finish_reason"):
                    continue
                now = time.perf_counter()
                if not trace.ttft:
                    trace.ttft = now - start
                else:
                    trace.itl.append(now - last)
                last = now
    except httpx.HTTPError as error:
        trace.error = f"{type(error).__name__}: {error}"
    trace.e2e = time.perf_counter() - start
    return trace


async def load(options: argparse.Namespace, model: str) -> tuple[list[Trace], float]:
    """Run all requests; their traces, and the seconds that it took."""
    rng = random.Random(options.seed)
    bodies = [
        {
            "model": model,
            "prompt": [rng.randint(10, 10000) for _ in range(options.input_len)],
            "max_tokens": options.output_len,
            "temperature": options.temperature,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        for _ in range(options.requests)
    ]
    places = asyncio.Semaphore(options.concurrency or options.requests)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    timeout = httpx.Timeout(options.timeout)
    bar = tqdm(total=options.requests, unit="req", disable=not sys.stderr.isatty())
    async with httpx.AsyncClient(base_url=options.url, limits=limits, timeout=timeout) as client:

        async def one(body: dict[str, Any]) -> Trace:
            async with places:
                trace = await stream(client, body)
            bar.update()
            return trace

        start = time.perf_counter()
        tasks = []
        for body in bodies:
            tasks.append(asyncio.create_task(one(body)))
            if options.request_rate:
                await asyncio.sleep(rng.expovariate(options.request_rate))
        traces = await asyncio.gather(*tasks)
        seconds = time.perf_counter() - start
    bar.close()
    return traces, seconds


def percentiles(values: list[float]) -> dict[str, float]:
    """Mean and percentiles, in milliseconds."""
    if not values:
        return {}
    ordered = sorted(values)
    at = {f"p{p}": ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))] for p in (50, 90, 99)}
    return {name: round(value * 1e3, 2) for name, value in {"mean": statistics.fmean(values), **at}.items()}


def report(options: argparse.Namespace, model: str, traces: list[Trace], seconds: float) -> dict[str, Any]:
    """All figures of a run, as they go to the JSON file."""
    done = [trace for trace in traces if trace.error is None]
    output_tokens = sum(trace.output_tokens for trace in done)
    return {
        "model": model,
        "settings": {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()},
        "completed": len(done),
        "failed": len(traces) - len(done),
        "errors": sorted({trace.error for trace in traces if trace.error}),
        "seconds": round(seconds, 3),
        "requests_s": round(len(done) / seconds, 3),
        "input_tok_s": round(len(done) * options.input_len / seconds, 1),
        "output_tok_s": round(output_tokens / seconds, 1),
        "ttft_ms": percentiles([trace.ttft for trace in done]),
        "itl_ms": percentiles([gap for trace in done for gap in trace.itl]),
        "e2e_ms": percentiles([trace.e2e for trace in done]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:30000")
    parser.add_argument("--model", help="default: the first that the server lists")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--concurrency", type=int, help="requests at a time; default: all")
    parser.add_argument("--request-rate", type=float, help="arrivals a second")
    parser.add_argument("--input-len", type=int, default=128, help="tokens")
    parser.add_argument("--output-len", type=int, default=64, help="tokens")
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=600, help="seconds without news until a request fails")
    parser.add_argument("--json", type=Path, help="write the report to this file")
    options = parser.parse_args()
    model = options.model or httpx.get(f"{options.url}/v1/models").raise_for_status().json()["data"][0]["id"]
    traces, seconds = asyncio.run(load(options, model))
    figures = report(options, model, traces, seconds)
    print(f"{figures['completed']} completed, {figures['failed']} failed in {seconds:.1f} s")
    print(f"{'requests/s':>12} {figures['requests_s']:>10}")
    print(f"{'input tok/s':>12} {figures['input_tok_s']:>10}")
    print(f"{'output tok/s':>12} {figures['output_tok_s']:>10}")
    print(f"{'ms':>12} {'mean':>10} {'p50':>10} {'p90':>10} {'p99':>10}")
    for name in ("ttft", "itl", "e2e"):
        row = figures[f"{name}_ms"]
        print(
            f"{name.upper():>12} "
            + " ".join(f"{row.get(key, float('nan')):>10}" for key in ("mean", "p50", "p90", "p99"))
        )
    for error in figures["errors"]:
        print(f"error: {error}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    if figures["failed"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
