"""Ctrl-C and SIGTERM at the right moment: a batch is not torn, a worker finishes what is in flight, none gets lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import asyncio

STOPPING = (signal.SIGINT, signal.SIGTERM)

Handlers = dict[signal.Signals, Callable[[int, FrameType | None], object] | int]


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends the work in the same way as Ctrl-C."""


def interruption(number: int) -> KeyboardInterrupt:
    """What to raise for a signal."""
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()


def ignore() -> None:
    """The outcome is final and the process is about to end: a later signal does not change it."""
    for number in _usual():
        signal.signal(number, signal.SIG_IGN)


def _usual() -> Handlers:
    """The handlers, as far as they may be replaced: a script's background job ignores Ctrl-C, which stays so."""
    found = {number: signal.getsignal(number) for number in STOPPING}
    return {number: handler for number, handler in found.items() if handler not in (signal.SIG_IGN, None)}


def _restore(handlers: Handlers) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


@contextmanager
def postponed(then: Handlers | None = None) -> Iterator[Callable[[], None]]:
    """While it lasts, the first SIGINT or SIGTERM is only remembered; the yielded function gives it its usual effect.

    A second one takes effect at once, and what is still remembered at the end takes effect then, unless it ends with an
    error. Outside the main thread nothing changes.

    Args:
        then: handlers that are the usual ones from now on: they take effect, and are in place afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    usual = _usual() | (then or {})
    remembered: list[tuple[int, FrameType | None]] = []
    acted = False

    def act() -> None:
        nonlocal acted
        acted = True
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
        if remembered and not acted:  # not every handler raises
            act()

    for number in usual:
        signal.signal(number, remember)
    try:
        yield check
    finally:
        _restore(usual)
    check()


class Signals:
    """SIGINT and SIGTERM from `with` on, for a process whose work is on event loops: the first one asks to stop.

    asyncio's own handlers end with their loop and leave the default ones, which kill the process. After an error the
    handlers are put back; after a clean end signals are ignored, because then the process has nothing to do but to end.
    No exception is raised: one raised in the middle of an import or of a `__del__` is easily lost.

    Attributes:
        came: the numbers of the signals, in their order.
        done: whether the last work is complete, and only its loop has to be closed.
    """

    def __init__(self, second: Callable[[int], object] = lambda number: None) -> None:
        """second: called in the signal handler for each signal but the first, with its number."""
        self.came: list[int] = []
        self.done = False
        self._second = second
        self._before: Handlers = {}

    def __enter__(self) -> Self:
        self._before = _usual()
        for number in self._before:
            signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            ignore()
        else:
            _restore(self._before)

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.came.append(number)
        if len(self.came) > 1:
            self._second(number)

    def run(
        self, work: Callable[[asyncio.Event, asyncio.Event], Awaitable[None]],
        loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:  # fmt: skip
        """Run a coroutine, given the events that the first signal sets and the second one; loop: makes the event loop,
        None = asyncio's."""
        import asyncio  # here, because the command line needs this module before it shows its help

        async def worked() -> None:
            stop, kill = asyncio.Event(), asyncio.Event()

            def tell() -> None:
                for event in (stop, kill)[: len(self.came)]:
                    event.set()

            with _woken(tell):
                tell()
                await work(stop, kill)
            self.done = True

        self.done = False
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(worked())


@contextmanager
def _woken(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` in the running loop after each signal, also if another thread is the one to be interrupted by it."""
    import asyncio
    import socket

    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()

    def read() -> None:
        near.recv(64)
        tell()

    with near, far:
        near.setblocking(False)
        far.setblocking(False)
        before = signal.set_wakeup_fd(far.fileno(), warn_on_full_buffer=False)
        loop.add_reader(near, read)
        try:
            yield
        finally:
            loop.remove_reader(near)
            signal.set_wakeup_fd(before)
