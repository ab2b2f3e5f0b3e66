"""Everything that a simulated process has instead of the machine's: clock, randomness, threads, event loops.

Import this module before anything that binds a clock by its name (`from time import monotonic`): the server of the
simulations (`server`) does so first of all. `SUBSTITUTES` is the whole list; a test compares it with what differs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import random
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

EPOCH = 1.76e9
"""Seconds since 1970 at the virtual time 0."""
START = 1000.0

REAL_CLOCK = time.perf_counter


class _Clock:
    """Virtual seconds. The scheduler alone moves it (`world`), and `time.sleep`.

    skew: seconds by which the time of day of the process that runs differs.
    """

    __slots__ = ("now", "skew")

    def __init__(self) -> None:
        self.now, self.skew = START, 0.0


Clock = _Clock()  # an object: to set an attribute of a class costs more, and each step sets both


def _sleep(seconds: float) -> None:
    Clock.now += max(0.0, seconds)


class Inline(concurrent.futures.Executor):
    """An executor that runs its work at once, in the thread that submits it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass


def _random_bytes(n: int) -> bytes:
    return random.randbytes(n)


def _uuid4() -> uuid.UUID:
    return uuid.UUID(bytes=_random_bytes(16), version=4)


SUBSTITUTES: tuple[tuple[str, str, Any], ...] = (
    ("time", "monotonic", lambda: Clock.now),
    ("time", "monotonic_ns", lambda: int(Clock.now * 1e9)),
    ("time", "perf_counter", lambda: Clock.now),
    ("time", "perf_counter_ns", lambda: int(Clock.now * 1e9)),
    ("time", "time", lambda: EPOCH + Clock.now + Clock.skew),
    ("time", "time_ns", lambda: int((EPOCH + Clock.now + Clock.skew) * 1e9)),
    ("time", "sleep", _sleep),
    ("os", "urandom", _random_bytes),
    ("random", "_urandom", _random_bytes),
    ("uuid", "uuid4", _uuid4),
    ("concurrent.futures", "ThreadPoolExecutor", Inline),
)
"""Module, name and substitute of everything that is replaced while a simulation runs. Besides, `world.World` has
its own policy of event loops, and its own `asyncio.run`."""

WATCHED = ("time", "os", "random", "uuid", "concurrent.futures", "asyncio", "threading", "socket")
"""Modules in which nothing else may differ."""


_before: dict[tuple[str, str], Any] = {}


def _contents() -> dict[tuple[str, str], Any]:
    return {
        (name, key): value
        for name in WATCHED
        for key, value in vars(sys.modules[name]).items()
        if not (name == "threading" and key.startswith("_"))  # a fork makes its locks anew
    }


def substituted() -> set[tuple[str, str]]:
    """Module and name of what differs, in the watched modules, from what it was before `install`."""
    return {place for place, value in _contents().items() if _before.get(place, value) is not value}


def install() -> None:
    """Substitute everything. It cannot be undone: a process of its own runs simulations.

    Raises:
        RuntimeError: a client is imported already, and may have bound the machine's clock.
    """
    if bound := [name for name in ("aiokafka", "mode", "faust") if name in sys.modules]:
        raise RuntimeError(f"{bound[0]} is imported already, and may have bound the clock of the machine")
    assert asyncio and os and socket and threading  # watched, and so imported
    concurrent.futures.ThreadPoolExecutor  # noqa: B018  # imported at its first use
    _before.update(_contents())
    for module, name, substitute in SUBSTITUTES:
        setattr(sys.modules[module], name, substitute)
