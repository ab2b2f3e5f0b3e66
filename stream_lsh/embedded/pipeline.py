"""Reading, signing and matching side by side: two threads feed the caller's.

Signing and compression release the interpreter's lock, parsing does not; short queues keep all of them busy and memory
bounded.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import copy_context
from enum import Enum
from typing import Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")
DEPTH = 4  # signed batches waiting (some 5 MB each): enough to work on while a commit waits for the disk


class _End(Enum):
    END = "the end of a stream"


class Stage(Generic[A]):
    """Runs an iterable in a thread of its own, with the context variables of the caller; iterate over the stage to get
    its items.

    An error in the thread is raised to the consumer after the items before it.
    """

    def __init__(self, items: Iterable[A], name: str, depth: int) -> None:
        self._queue: queue.Queue[A | _End] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._error: BaseException | None = None  # that ended the items
        # A daemon: it may be blocked in reading a pipe for ever, which must not block the end of the process.
        self._thread = threading.Thread(target=copy_context().run, args=(self._run, items), name=name, daemon=True)
        self._thread.start()

    def _run(self, items: Iterable[A]) -> None:
        try:
            for item in items:
                if not self._put(item):
                    return
        except BaseException as caught:
            self._error = caught
        self._put(_End.END)

    def _put(self, item: A | _End) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=0.2)
                return True
            except queue.Full:
                continue
        return False

    def get(self, timeout: float | None = None) -> A | None:
        """The next item, or None after `timeout` seconds.

        Raises:
            StopIteration: at the end, or after `stop`. The error that ended the items, if any.
        """
        if self._stopped.is_set():
            raise StopIteration
        try:
            item = self._queue.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(item, _End):
            self._queue.put(item)
            if self._error is None or self._stopped.is_set():
                raise StopIteration
            raise self._error
        return item

    def take(self, most: int) -> list[A]:
        """The next items: waits for one, and adds those that are there by then, at most `most` together. Empty at the
        end, or after `stop`.

        Raises the error that ended the items, after these.
        """
        found = list[A]()
        while len(found) < most:
            try:
                item = self.get(0 if found else None)
            except StopIteration:
                break
            except BaseException as error:
                if found and error is self._error:  # the next call raises it again; a signal's error does not wait
                    break
                raise
            if item is None:
                break
            found.append(item)
        return found

    def each(self, timeout: float | None = None) -> Iterator[A | None]:
        """The items, and None after `timeout` seconds without one. Raises the error that ended the items, if any."""
        while True:
            try:
                item = self.get(timeout)
            except StopIteration:
                return
            yield item

    def __iter__(self) -> Iterator[A]:
        return (item for item in self.each() if item is not None)

    def stop(self) -> None:
        """End the thread and every call that waits for an item. Items under way are dropped."""
        self._stopped.set()
        with suppress(queue.Full):  # then no call waits
            self._queue.put_nowait(_End.END)


def chain(items: Iterable[A], work: Callable[[A], B]) -> tuple[Stage[B], Callable[[], None]]:
    """Items made in one thread and worked on in another; returns the last stage and what stops both."""
    first = Stage(items, "read", 2)
    second = Stage(map(work, first), "sign", DEPTH)

    def stop() -> None:
        first.stop()
        second.stop()

    return second, stop
