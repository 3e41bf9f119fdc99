"""`run_engine`: what the engine process does, from its first line to its last. Imports no torch.

It ends when it is told to, when it fails, or when its parent dies, however that dies. Signals do not end it: a Ctrl-C
in a terminal, or a service manager's SIGTERM, goes to the whole process group, and the parent may then still have
requests to finish.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import msgspec
import zmq

from core.errors import CoreError
from core.log import configure_logging
from core.managers.engine_core import EngineCore
from core.managers.engine_loop import describe_failure, run_loop
from core.managers.messages import EngineFailed, FromEngine, ToEngine

logger = logging.getLogger(__name__)

BuildEngine = Callable[[], EngineCore]
"""Makes the engine. Picklable: a module's function, or a `functools.partial` of one."""

FAILED = 1
"""Exit code after an error that was reported."""
LAST_WORDS_MS = 2000
"""Milliseconds that the last message gets to reach the parent."""


@dataclass(frozen=True, slots=True)
class EngineAddresses:
    """Sockets of one engine process, in a folder of their own that only this user can open."""

    folder: str

    @property
    def requests(self) -> str:
        """Bound by the engine: messages to it."""
        return f"ipc://{self.folder}/requests"

    @property
    def news(self) -> str:
        """Bound by the parent: messages from the engine."""
        return f"ipc://{self.folder}/news"

    def remove(self) -> None:
        """Remove the folder and what is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)


def run_engine(build: BuildEngine, addresses: EngineAddresses, log_level: int) -> None:
    """Build an engine and serve until told to stop. Exits with `FAILED` after an error, which the parent is told."""
    ignored = (signal.SIGINT, signal.SIGTERM)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ignored)  # the parent started this process with them blocked
    configure_logging(log_level)
    threading.Thread(target=_end_with_parent, args=(addresses,), name="parent watch", daemon=True).start()
    with zmq.Context() as context:
        wire = _Wire(context, addresses)
        failure = _serve(build, wire)
        if failure is not None:
            wire.send([EngineFailed(failure)])
        wire.close()
    if failure is not None:
        sys.exit(FAILED)


def _serve(build: BuildEngine, wire: _Wire) -> str | None:
    """Build and run the engine. Why it failed, or None if it was told to stop."""
    try:
        core = build()
        # What stands now stays: the collector need not look through it again and again.
        gc.collect()
        gc.freeze()
        run_loop(core, wire.receive, wire.send)
        return None
    except CoreError as error:  # its message says all, and the parent prints it
        return describe_failure(error)
    except BaseException as error:
        logger.exception("the engine failed")
        return describe_failure(error)


def _end_with_parent(addresses: EngineAddresses) -> None:
    """Wait for the parent's death, which also a SIGKILL cannot hide, and end this process on the spot."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    addresses.remove()
    os._exit(FAILED)


@final
class _Wire:
    """The engine's ends of the two sockets. Queues are unbounded: the front end bounds what it lets in."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], addresses: EngineAddresses) -> None:
        self._inbox = context.socket(zmq.PULL)
        self._inbox.set_hwm(0)
        self._inbox.bind(addresses.requests)
        self._outbox = context.socket(zmq.PUSH)
        self._outbox.set_hwm(0)
        self._outbox.connect(addresses.news)
        self._decoder = msgspec.msgpack.Decoder(list[ToEngine])
        self._encoder = msgspec.msgpack.Encoder()

    def receive(self, wait: bool) -> list[ToEngine]:
        """All messages that have come in; waits for the first one if asked to."""
        messages: list[ToEngine] = []
        while True:
            try:
                frame = self._inbox.recv(0 if wait and not messages else zmq.NOBLOCK)
            except zmq.Again:
                return messages
            messages += self._decoder.decode(frame)

    def send(self, news: list[FromEngine]) -> None:
        """Send one frame. Never waits."""
        self._outbox.send(self._encoder.encode(news), zmq.NOBLOCK)

    def close(self) -> None:
        self._inbox.close(linger=0)
        self._outbox.close(linger=LAST_WORDS_MS)
