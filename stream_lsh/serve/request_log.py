"""The log of requests that write, and of refusals."""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LOG = logging.getLogger("stream_lsh.serve.requests")
_MOST = 10_000  # lines that wait to be written
_GATHER_SECONDS = 0.05


class _Writer(logging.Handler):
    """Writes lines to standard error in a thread of its own, some at a time: no request waits for a slow reader."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._some = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="request log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._lines) >= _MOST:
            self._dropped += 1
            return
        self._lines.append(f"stream-lsh: {record.getMessage()}\n")
        if not self._some.is_set():
            self._some.set()

    def _run(self) -> None:
        while self._some.wait():
            self._closed.wait(_GATHER_SECONDS)
            self._some.clear()
            some = [self._lines.popleft() for _ in range(len(self._lines))]
            if dropped := self._dropped:
                self._dropped = 0
                some.append(f"stream-lsh: request log: {dropped} lines were dropped: standard error is too slow\n")
            with suppress(OSError, ValueError):
                sys.stderr.write("".join(some))
                sys.stderr.flush()
            if self._closed.is_set():
                return

    def close(self) -> None:
        self._closed.set()
        self._some.set()
        self._thread.join(timeout=1)
        super().close()


@contextmanager
def written() -> Iterator[None]:
    """The request log is written to standard error inside."""
    writer = _Writer()
    LOG.addHandler(writer)
    LOG.propagate = False
    try:
        yield
    finally:
        LOG.removeHandler(writer)
        LOG.propagate = True
        writer.close()
