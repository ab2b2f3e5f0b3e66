"""Ctrl-C and SIGTERM wait for the end of a batch: nothing is torn, and what was done is committed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def postponed() -> Iterator[Callable[[], None]]:
    """While it lasts, the first SIGINT or SIGTERM is only remembered; the yielded function gives it its usual effect.

    A second one takes effect at once. Outside the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # What is ignored stays so: a script's background job ignores Ctrl-C, and must still end at SIGTERM.
    usual = {number: handler for number, handler in found.items() if handler not in (signal.SIG_IGN, None)}
    remembered: list[tuple[int, FrameType | None]] = []

    def act() -> None:
        number, frame = remembered[0]
        handler = usual[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        else:
            raise SystemExit(128 + number)

    def remember(number: int, frame: FrameType | None) -> None:
        remembered.append((number, frame))
        if len(remembered) > 1:
            act()

    def check() -> None:
        if remembered:
            act()

    for number in usual:
        signal.signal(number, remember)
    try:
        yield check
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
