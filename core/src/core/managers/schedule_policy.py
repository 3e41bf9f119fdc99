"""Which waiting request comes next, and how much memory running ones are expected to take. Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from itertools import islice
from typing import final

from core.managers.request import Req
from core.mem_cache.kv_memory import KVMemory


class SchedulePolicy(ABC):
    """Orders the waiting requests. Retracted requests are not subject to it: they go first."""

    @abstractmethod
    def order(self, waiting: Collection[Req]) -> list[Req]:
        """The requests to try, in this order; a subset is allowed. Mutates nothing."""


@final
class FirstComeFirstServed(SchedulePolicy):
    """`fcfs`: in the order of arrival."""

    def order(self, waiting: Collection[Req]) -> list[Req]:
        return list(waiting)


@final
class LongestPrefixMatch(SchedulePolicy):
    """`lpm`: the longest cached prefix first, so that prefixes are used before they are evicted (SGLang's policy).

    Only the first `WINDOW` of the queue are compared, so that a step's cost stays bounded, and a request that was
    overtaken `PATIENCE` times goes first, so that none starves.
    """

    WINDOW = 64
    PATIENCE = 256

    def __init__(self, memory: KVMemory) -> None:
        self._memory = memory

    def order(self, waiting: Collection[Req]) -> list[Req]:
        window = list(islice(waiting, self.WINDOW))
        if len(window) < 2:
            return window

        def key(req: Req) -> tuple[bool, int]:
            impatient = req.overtaken >= self.PATIENCE
            return not impatient, 0 if impatient else -self._memory.peek(req.token_ids(), req.request.extra_key)

        return sorted(window, key=key)


class NewTokenRatio:
    """The share of their remaining tokens that running requests are expected to draw, as in SGLang.

    Requests rarely use all of `max_tokens`. Reserving only a share of it lets the pool be filled; when the guess was
    too low requests are retracted, and the ratio rises to what they had really used.
    """

    DECAY_STEPS = 600
    FLOOR = 0.1
    MARGIN_TOKENS = 20

    def __init__(self, start: float) -> None:
        self._start = start
        self._decay = start * (1 - self.FLOOR) / self.DECAY_STEPS
        self.value = start

    def step(self) -> None:
        """A decode step went well: expect a little less."""
        self.value = max(self._start * self.FLOOR, self.value - self._decay)

    def retracted(self, running: Iterable[Req]) -> None:
        """Memory ran out: expect what the requests that still run have used, and a margin."""
        drawn, limit = 0, 0
        for req in running:
            drawn += req.num_drawn + self.MARGIN_TOKENS
            limit += req.max_tokens
        self.value = min(1.0, max(self.value, drawn / max(limit, 1)))
