"""The loop over a worker without a model: every output equals its solo run, and afterwards every page is free."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config import SchedulerConfig
from core.managers.engine_core import EngineCore
from core.managers.messages import AbortRequests, AddRequest, CacheFlushed, FlushCache, RequestOutput
from core.sampling.params import SamplingParams
from core.testing.history_worker import HistoryWorker, next_token

VOCAB = 50
EOS = (7, 8)


def add(request_id: str, prompt_ids: list[int], max_tokens: int, **params: object) -> AddRequest:
    extra_key = str(params.pop("extra_key", ""))
    params.setdefault("seed", 0)
    return AddRequest(request_id, prompt_ids, SamplingParams(max_tokens=max_tokens, **params), EOS, extra_key)  # type: ignore[arg-type]


def solo(request: AddRequest) -> tuple[list[int], str]:
    """What a request draws, by definition."""
    history, drawn, params = list(request.prompt_ids), [], request.params
    assert params.max_tokens is not None
    assert params.seed is not None
    ends = set(params.stop_token_ids) | (set() if params.ignore_eos else set(EOS))
    while len(drawn) < params.max_tokens:
        drawn.append(next_token(history + drawn, params.seed, VOCAB))
        if drawn[-1] in ends and len(drawn) > params.min_tokens:
            return drawn, "stop"
    return drawn, "length"


@dataclass
class Received:
    """All news of the requests of one run."""

    tokens: dict[str, list[int]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    first: dict[str, RequestOutput] = field(default_factory=dict)

    def take(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            assert output.request_id not in self.reasons, "news after the last"
            self.first.setdefault(output.request_id, output)
            self.tokens.setdefault(output.request_id, []).extend(output.token_ids)
            if output.finish_reason is not None:
                self.reasons[output.request_id] = output.finish_reason


def make_core(
    *,
    num_pages: int = 40,
    page_size: int = 4,
    max_rows: int = 9,
    context: int = 96,
    share: bool = True,
    **config: object,
) -> tuple[EngineCore, HistoryWorker]:
    worker = HistoryWorker(
        num_pages=num_pages, page_size=page_size, max_rows=max_rows, max_context_len=context, vocab_size=VOCAB
    )
    config.setdefault("max_running_requests", max_rows - 1)
    core = EngineCore(worker, SchedulerConfig(**config), share_prefixes=share)  # type: ignore[arg-type]
    return core, worker


def run(core: EngineCore, received: Received | None = None) -> Received:
    received = received or Received()
    for _ in range(20_000):
        if not core.has_work():
            break
        received.take(core.step().outputs)
    else:
        pytest.fail("the engine does not come to rest")
    check_idle(core)
    return received


def check_idle(core: EngineCore) -> None:
    core.memory.check()
    core.memory.cache.check()
    stats = core.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_held_pages) == (0, 0, 0)
    assert stats.num_free_pages + stats.num_cached_pages == stats.num_pages
    core.memory.flush()
    assert core.memory.allocator.num_free == stats.num_pages


OVERLAP = pytest.mark.parametrize("disable_overlap_schedule", [True, False])


@OVERLAP
@pytest.mark.parametrize("page_size", [1, 4, 16, 64])
@pytest.mark.parametrize("chunk", [1, 3, 16, 17, 512])
@pytest.mark.parametrize("policy", ["lpm", "fcfs"])
def test_many_requests_equal_their_solo_runs(
    disable_overlap_schedule: bool, page_size: int, chunk: int, policy: str
) -> None:
    rng = random.Random(page_size * 1000 + chunk)
    core, _ = make_core(
        num_pages=1 + 640 // page_size,
        page_size=page_size,
        disable_overlap_schedule=disable_overlap_schedule,
        chunked_prefill_size=chunk,
        schedule_policy=policy,
    )
    head = [rng.randrange(VOCAB) for _ in range(40)]
    requests = [
        add(
            f"r{i}",
            head[: rng.randrange(40)] + [rng.randrange(VOCAB) for _ in range(rng.randint(1, 30))],
            rng.randint(1, 20),
        )
        for i in range(30)
    ]
    core.handle(requests)
    received = run(core)
    for request in requests:
        assert (received.tokens[request.request_id], received.reasons[request.request_id]) == solo(request)


@OVERLAP
def test_a_pool_too_small_for_all_retracts_and_loses_nothing(disable_overlap_schedule: bool) -> None:
    core, _ = make_core(num_pages=25, disable_overlap_schedule=disable_overlap_schedule, new_token_ratio=0.05)
    requests = [add(f"r{i}", [i, i + 1, i + 2], 80, ignore_eos=True) for i in range(8)]
    core.handle(requests)
    received = run(core)
    assert core.scheduler.num_retractions > 0
    for request in requests:
        assert received.tokens[request.request_id] == solo(request)[0]


def test_a_retraction_during_chunked_prefill_loses_nothing() -> None:
    """Decoding rows take the pages that a chunked prompt was to have: it, too, may be retracted."""
    core, _ = make_core(num_pages=25, new_token_ratio=0.01, chunked_prefill_size=2)
    requests = [add(f"d{i}", [i, i], 40, ignore_eos=True) for i in range(4)]
    core.handle(requests)
    received = Received()
    for _ in range(3):
        received.take(core.step().outputs)
    late = [add(f"p{i}", [9, i] * 30, 4) for i in range(2)]
    core.handle(late)
    run(core, received)
    assert core.scheduler.num_retractions > 0
    for request in requests + late:
        assert (received.tokens[request.request_id], received.reasons[request.request_id]) == solo(request)


@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33])
def test_a_fully_cached_prompt_computes_at_least_its_last_token(length: int) -> None:
    core, worker = make_core(page_size=16, context=128)
    prompt = [(3 * i) % VOCAB for i in range(length)]
    core.handle([add("cold", prompt, 3, ignore_eos=True)])
    run_without_flush(core)
    computed = worker.num_computed_tokens
    core.handle([add("warm", prompt, 3, ignore_eos=True)])
    received = run_without_flush(core)
    cached = (length - 1) // 16 * 16
    assert received.first["warm"].cached_tokens == cached
    assert worker.num_computed_tokens - computed == length - cached + 2
    assert received.tokens["warm"] == solo(add("", prompt, 3, ignore_eos=True))[0]


def run_without_flush(core: EngineCore) -> Received:
    received = Received()
    while core.has_work():
        received.take(core.step().outputs)
    return received


@OVERLAP
def test_identical_prompts_at_once_are_computed_once(disable_overlap_schedule: bool) -> None:
    core, worker = make_core(disable_overlap_schedule=disable_overlap_schedule)
    prompt = [(7 * i) % VOCAB for i in range(41)]
    core.handle([add(f"r{i}", prompt, 1, seed=i) for i in range(8)])
    received = run(core)
    for i in range(8):
        assert received.tokens[f"r{i}"] == solo(add("", prompt, 1, seed=i))[0]
    assert worker.num_computed_tokens == 41 + 7 * (41 - 40), "the others share ten full pages of the same batch"


def test_an_extra_key_keeps_prefixes_apart() -> None:
    core, _ = make_core()
    prompt = [5] * 20
    core.handle([add("a", prompt, 2, extra_key="tenant a")])
    run_without_flush(core)
    core.handle([add("b", prompt, 2, extra_key="tenant b"), add("c", prompt, 2, extra_key="tenant a")])
    received = run_without_flush(core)
    assert received.first["b"].cached_tokens == 0
    assert received.first["c"].cached_tokens == 16


def test_without_radix_cache_nothing_is_shared() -> None:
    core, _ = make_core(share=False)
    core.handle([add(f"r{i}", [5] * 20, 2) for i in range(3)])
    received = run(core)
    assert {news.cached_tokens for news in received.first.values()} == {0}


def test_decoded_tokens_are_cached_for_the_next_turn() -> None:
    core, _ = make_core()
    first = add("a", list(range(10)), 11, ignore_eos=True)
    core.handle([first])
    answer = run_without_flush(core).tokens["a"]
    core.handle([add("b", [*range(10), *answer, 1, 2, 3], 2)])
    # Ten and eleven tokens; the last drawn one was never an input, so twenty have keys and values.
    assert run_without_flush(core).first["b"].cached_tokens == 20


def test_a_request_at_the_limit_runs_and_one_above_is_refused_at_once() -> None:
    core, _ = make_core(num_pages=11, page_size=4, context=96)
    assert core.ready.max_total_tokens == 40
    core.handle([add("fits", [1] * 30, 10, ignore_eos=True), add("never", [1] * 31, 10), add("other", [2], 3)])
    received = run(core)
    assert received.reasons["never"] == "abort"
    assert "41 tokens" in (received.first["never"].error or "")
    assert received.tokens["fits"] == solo(add("", [1] * 30, 10, ignore_eos=True))[0]
    assert received.reasons["other"] == solo(add("", [2], 3))[1]


def test_min_tokens_outlasts_end_of_sequence_and_stop_ids() -> None:
    core, _ = make_core()
    requests = [add(f"r{i}", [i], 60, min_tokens=5, stop_token_ids=tuple(range(0, VOCAB, 3))) for i in range(8)]
    core.handle(requests)
    received = run(core)
    for request in requests:
        assert received.tokens[request.request_id] == solo(request)[0]
        assert len(received.tokens[request.request_id]) > 5


def test_zero_tokens_only_prefills() -> None:
    core, worker = make_core()
    core.handle([add("r", [1, 2, 3], 0)])
    received = run(core)
    assert (received.tokens["r"], received.reasons["r"]) == ([], "length")
    assert worker.num_computed_tokens == 3


def test_a_request_id_in_use_is_refused_and_the_first_goes_on() -> None:
    core, _ = make_core()
    core.handle([add("r", [1], 3, ignore_eos=True)])
    core.step()
    core.handle([add("r", [2], 3)])
    outputs = [output for _ in range(10) if core.has_work() for output in core.step().outputs]
    assert [output.error for output in outputs if output.error] == ["request id 'r' is in use"]
    assert sum(len(output.token_ids) for output in outputs) >= 2


def test_flush_empties_the_cache_but_not_what_is_read() -> None:
    core, _ = make_core()
    core.handle([add("done", [1] * 20, 2)])
    run_without_flush(core)
    core.handle([add("live", [2] * 20, 5, ignore_eos=True)])
    core.step()
    (answer,) = core.handle([FlushCache(3)])
    assert isinstance(answer, CacheFlushed)
    assert (answer.call_id, answer.num_pages) == (3, 5)
    assert run(core).tokens["live"][-1] == solo(add("", [2] * 20, 5, ignore_eos=True))[0][-1]


def test_nobody_starves_behind_longer_prefixes() -> None:
    core, _ = make_core(max_rows=2)
    core.scheduler._policy.PATIENCE = 5  # type: ignore[attr-defined]
    hot = [3] * 24
    core.handle([add("warm", hot, 1), add("first", [1, 2], 2, ignore_eos=True), add("cold", [4, 5, 6], 1)])
    received = Received()
    for i in range(60):
        core.handle([add(f"hot{i}", [*hot, i % VOCAB], 1)])
        received.take(core.step().outputs)
    assert "cold" in received.reasons
    run(core, received)


@st.composite
def workloads(draw: st.DrawFn) -> tuple[dict[str, object], list[tuple[int, object]]]:
    """A configuration, and events: at which step what is sent."""
    page_size = draw(st.sampled_from([1, 2, 4, 16]))
    pool_tokens = draw(st.integers(48, 160))
    config = {
        "page_size": page_size,
        "num_pages": 1 + -(-pool_tokens // page_size),
        "max_rows": draw(st.integers(2, 9)),
        "chunked_prefill_size": draw(st.integers(1, 40)),
        "schedule_policy": draw(st.sampled_from(["lpm", "fcfs"])),
        "disable_overlap_schedule": draw(st.booleans()),
        "new_token_ratio": draw(st.sampled_from([0.01, 0.3, 1.0])),
        "share": draw(st.booleans()),
        "context": 48,
    }
    head = draw(st.lists(st.integers(0, VOCAB - 1), min_size=30, max_size=30))
    events: list[tuple[int, object]] = []
    for i in range(draw(st.integers(1, 24))):
        prompt = head[: draw(st.integers(0, 30))] + draw(st.lists(st.integers(0, 3), min_size=1, max_size=8))
        request = add(
            f"r{i}",
            prompt,
            draw(st.integers(0, 48 - len(prompt))),
            seed=draw(st.integers(0, 3)),
            ignore_eos=draw(st.booleans()),
            extra_key=draw(st.sampled_from(["", "", "k"])),
        )
        at = draw(st.integers(0, 30))
        events.append((at, request))
        if draw(st.integers(0, 3)) == 0:
            events.append((at + draw(st.integers(0, 30)), AbortRequests([f"r{i}"])))
    return config, sorted(events, key=lambda event: event[0])


@settings(max_examples=250, deadline=None)
@given(workloads())
def test_random_mixes_over_a_tiny_pool(workload: tuple[dict[str, object], list[tuple[int, object]]]) -> None:
    config, events = workload
    core, _ = make_core(**config)  # type: ignore[arg-type]
    received = Received()
    aborted: set[str] = set()
    for step in range(62):
        now = [message for at, message in events if at == step]
        aborted |= {message.request_ids[0] for message in now if isinstance(message, AbortRequests)}
        core.handle(now)  # type: ignore[arg-type]
        if core.has_work():
            received.take(core.step().outputs)
    run(core, received)
    for request in requests_of(events):
        tokens, reason = solo(request)
        got = received.tokens.get(request.request_id, [])
        if request.request_id in received.reasons:
            assert (got, received.reasons[request.request_id]) == (tokens, reason)
        else:
            assert request.request_id in aborted
            assert got == tokens[: len(got)]


def requests_of(events: list[tuple[int, object]]) -> Iterator[AddRequest]:
    return (message for _, message in events if isinstance(message, AddRequest))
