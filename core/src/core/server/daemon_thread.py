"""Blocking work that the process need not wait for when it is told to stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

_running: set[threading.Thread] = set()


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread and return its result. If cancelled, the thread is left to itself.

    An executor's threads would be joined at exit, minutes into a download.
    """
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()  # so that whoever waits can be cancelled, and this cannot

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            result.set_exception(error)
        else:
            result.set_result(value)
        finally:
            _running.discard(threading.current_thread())

    thread = threading.Thread(target=run, name="loading", daemon=True)
    _running.add(thread)
    thread.start()
    return await asyncio.wrap_future(result)


def any_abandoned() -> bool:
    """Whether a thread of `in_daemon_thread` still works."""
    return bool(_running)
