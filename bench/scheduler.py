"""Host work of one engine step with a model that costs nothing.

    python bench/scheduler.py

Every request decodes; the time is that of `EngineCore.step` (schedule, hand over, process, report) and of encoding the
news for the front end.
"""

from __future__ import annotations

import argparse
import statistics
import time

import msgspec

from core.config import SchedulerConfig
from core.managers.engine_core import EngineCore
from core.managers.messages import AddRequest
from core.model_executor.worker import StepHandle, Worker, WorkerLimits
from core.model_executor.worker_batch import ModelWorkerBatch, StepOutput
from core.sampling.params import SamplingParams

MAX_ROWS = 4097


class FreeWorker(Worker):
    """Draws token 5 for everybody, at no cost."""

    @property
    def limits(self) -> WorkerLimits:
        return WorkerLimits(
            num_pages=(MAX_ROWS * 80,),
            page_size=16,
            max_rows=MAX_ROWS,
            max_context_len=4096,
            vocab_size=50_000,
            launches_async=True,
        )

    def launch(self, batch: ModelWorkerBatch) -> StepHandle:
        return Drawn(StepOutput(batch.step_id, [5] * int(batch.sample.sum())))


class Drawn(StepHandle):
    def __init__(self, output: StepOutput) -> None:
        self._output = output

    def wait(self) -> StepOutput:
        return self._output


def step_times(num_running: int, num_steps: int) -> list[float]:
    """Seconds of each steady decode step with `num_running` requests."""
    config = SchedulerConfig(max_running_requests=MAX_ROWS - 1, chunked_prefill_size=1 << 20)
    core = EngineCore(FreeWorker(), config)
    params = SamplingParams(max_tokens=num_steps + 64, ignore_eos=True, seed=1)
    core.handle([AddRequest(f"request-{i}", [i % 50_000] * 200, params) for i in range(num_running)])
    encoder = msgspec.msgpack.Encoder()
    for _ in range(20):
        encoder.encode(core.step())
    times = []
    for _ in range(num_steps):
        start = time.perf_counter()
        encoder.encode(core.step())
        times.append(time.perf_counter() - start)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--running", type=int, nargs="+", default=[1, 16, 64, 256, 1024, 4096])
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    print(f"{'running':>8} {'median ms':>10} {'p99 ms':>8} {'us a request':>13}")
    for num_running in options.running:
        times = sorted(step_times(num_running, options.steps))
        median, p99 = statistics.median(times), times[int(len(times) * 0.99)]
        print(
            f"{num_running:>8} {median * 1e3:>10.3f} {p99 * 1e3:>8.3f} {median / num_running * 1e6:>13.2f}", flush=True
        )


if __name__ == "__main__":
    main()
