"""A line now and then on standard error while something long is made."""

from __future__ import annotations

import sys
import time
from types import TracebackType


class Pace:
    """Tell how many of a total are done and how fast, at most every `every` seconds, and once at the end."""

    def __init__(self, verb: str, total: int, every: float = 5.0) -> None:
        self._verb, self._total, self._every = verb, total, every
        self._start = self._last = time.perf_counter()
        self._done = 0

    def __enter__(self) -> Pace:
        return self

    def __call__(self, done: int) -> None:
        """So many are done by now."""
        self._done = done
        if time.perf_counter() - self._last >= self._every:
            self._tell()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell()

    def _tell(self) -> None:
        self._last = time.perf_counter()
        rate = self._done / max(self._last - self._start, 1e-9)
        print(f"{self._verb} {self._done:,} of {self._total:,} documents, {rate:,.0f}/s", file=sys.stderr, flush=True)
