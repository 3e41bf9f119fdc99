"""`run_loop`: drives an `EngineCore` between two queues, until it is told to stop. Imports no torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from core.errors import CoreError
from core.managers.engine_core import EngineCore
from core.managers.messages import FromEngine, Shutdown, StepNews, ToEngine

Receive = Callable[[bool], Sequence[ToEngine]]
"""Gives every message that has come in; waits for one if the argument is true."""
Send = Callable[[list[FromEngine]], None]

STATS_INTERVAL = 0.25
"""Seconds after which gauges are sent although no request has news, as in the chunks of a long prompt."""


def run_loop(core: EngineCore, receive: Receive, send: Send) -> None:
    """Serve until a `Shutdown` comes in. Says first that the engine is ready.

    One step's news go out as one list. Whenever the engine comes to rest its last gauges are sent, so that nobody is
    left with figures of a step in the middle.
    """
    send([core.ready])
    sent_at = time.monotonic()
    while True:
        messages = receive(not core.has_work())
        if any(isinstance(message, Shutdown) for message in messages):
            return
        news = core.handle(messages)
        if core.has_work():
            step = core.step()
            if step.outputs or not core.has_work() or time.monotonic() - sent_at > STATS_INTERVAL:
                news.append(step)
        elif messages:
            news.append(StepNews([], core.stats()))
        if news:
            send(news)
            sent_at = time.monotonic()


def describe_failure(error: BaseException) -> str:
    """What the front end is told when an engine fails; the traceback is for the log."""
    return str(error) if isinstance(error, CoreError) else f"the engine failed with {type(error).__name__}: {error}"
