"""Guards an index: threads, processes and Ctrl-C."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` converts handlers with each call, which takes 18 µs
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from stream_lsh.errors import StoreError

_process = os.getpid()


def _note_process() -> None:
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=_note_process)  # to ask the system at each call takes 2 µs


class Guard:
    """Lets one thread at a time use an index, in the process that has opened it, as long as the index is whole.

    Args:
        folder: of the index, for messages.

    Attributes:
        lock: of the thread that uses it. closed: whether it is. torn: whether something was broken off that leaves
        nothing to go on from. failure: what did that, if no caller has seen it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = _process
        self.lock = threading.RLock()
        self.closed = False
        self.torn = False
        self.failure: Exception | None = None

    @property
    def forked(self) -> bool:
        """Whether this is not the process that has opened the index."""
        return self._process != _process

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Alone with an index that is whole, until it is whole again.

        Raises:
            StoreError: it is not, or must not be used.
        """
        self.check_process()
        with self.lock, uninterrupted():
            self.check()
            yield

    def check_process(self) -> None:
        """Raise StoreError in a process that was forked, where the lock must not be asked for either."""
        if self.forked:
            raise StoreError(
                f"this Deduplicator belongs to the process {self._process}, which this one was forked from: make a "
                "new one here, with read_only = True while that one has its own"
            )

    def check(self) -> None:
        """Raise StoreError if the index is closed or torn."""
        if self.closed:
            raise StoreError("this Deduplicator is closed: make a new one")
        if self.torn:
            why = f" ({self.failure})" if self.failure is not None else ""
            raise StoreError(
                f"a batch or a commit of the index in {self._folder} was broken off{why}: close this Deduplicator and "
                "make a new one; what was committed before is in the index"
            ) from self.failure


class uninterrupted:
    """Hold back SIGINT: its handler, which raises KeyboardInterrupt by default, is called after the block.

    Only the main thread runs handlers, so in other threads there is nothing to hold back.
    """

    __slots__ = ("_came", "_handler")

    def __enter__(self) -> None:
        handler = _signal.getsignal(_signal.SIGINT)
        main = threading.current_thread() is threading.main_thread()
        self._handler = handler if main and callable(handler) else None
        if self._handler is not None:
            self._came: list[tuple[int, FrameType | None]] = []
            came = self._came
            _signal.signal(_signal.SIGINT, lambda number, frame: came.append((number, frame)))

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            _signal.signal(_signal.SIGINT, self._handler)
            if self._came:
                self._handler(*self._came[-1])
