"""Prometheus metrics of one server, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from core.managers.messages import EngineStats

_TTFT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)
_INTER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2.5, 5)
_END_TO_END = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)


class Outcome(Enum):
    """How a request ended. Each request counts once."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    INVALID = "invalid"
    REJECTED = "rejected"
    ERROR = "error"


class EngineCollector:
    """A collector in prometheus_client's sense: reads the engine's figures when somebody asks for them.

    Before the engine runs there are none.
    """

    def __init__(self, stats: Callable[[], EngineStats | None]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        if stats is None:
            return
        yield GaugeMetricFamily("core_running_requests", "Continuations in the running batch.", stats.num_running)
        yield GaugeMetricFamily("core_waiting_requests", "Continuations that wait for room.", stats.num_waiting)
        pages = GaugeMetricFamily("core_pool_pages", "Pages of the KV pool by use.", labels=["use"])
        pages.add_metric(["free"], stats.num_free_pages)
        pages.add_metric(["cached"], stats.num_cached_pages)
        pages.add_metric(["held"], stats.num_held_pages)
        yield pages
        used = stats.num_held_pages / stats.num_pages if stats.num_pages else 0.0
        yield GaugeMetricFamily("core_pool_used_ratio", "Share of the pages held by running requests.", used)
        hits = stats.cached_tokens / stats.prompt_tokens if stats.prompt_tokens else 0.0
        yield GaugeMetricFamily("core_cache_hit_ratio", "Share of all prompt tokens found in the prefix cache.", hits)
        yield CounterMetricFamily("core_prompt_tokens", "Prompt tokens, cached ones too.", stats.prompt_tokens)
        yield CounterMetricFamily("core_cached_tokens", "Prompt tokens found in the prefix cache.", stats.cached_tokens)
        yield CounterMetricFamily("core_output_tokens", "Tokens drawn.", stats.output_tokens)
        yield CounterMetricFamily("core_retractions", "Requests put back to make room.", stats.num_retractions)
        yield CounterMetricFamily("core_steps", "Steps of the engine.", stats.num_steps)


class Metrics:
    """What the server measures itself, beside the engine's figures."""

    def __init__(self, stats: Callable[[], EngineStats | None]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(EngineCollector(stats))
        self.open_requests = Gauge(
            "core_open_requests", "HTTP requests for generation in progress.", registry=self._registry
        )
        self.time_to_first_token = Histogram(
            "core_time_to_first_token_seconds",
            "From a request's arrival to its first token.",
            buckets=_TTFT,
            registry=self._registry,
        )
        self.inter_token_latency = Histogram(
            "core_inter_token_latency_seconds",
            "Between a choice's successive tokens.",
            buckets=_INTER_TOKEN,
            registry=self._registry,
        )
        self.end_to_end_latency = Histogram(
            "core_request_latency_seconds",
            "From a request's arrival to its last token, of those that were answered.",
            buckets=_END_TO_END,
            registry=self._registry,
        )
        requests = Counter("core_requests", "Requests for generation by outcome.", ["outcome"], registry=self._registry)
        self._by_outcome = {outcome: requests.labels(outcome.value) for outcome in Outcome}

    def count(self, outcome: Outcome) -> None:
        """Count one request that ended."""
        self._by_outcome[outcome].inc()

    def text(self) -> bytes:
        """All figures in Prometheus' text format."""
        text: bytes = generate_latest(self._registry)
        return text
