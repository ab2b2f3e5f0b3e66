"""How often something is said that would be repeated otherwise."""

from __future__ import annotations

import time
from collections.abc import Hashable


class Often:
    """At most once in so many seconds, for each of several things."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: dict[Hashable, float] = {}

    def due(self, what: Hashable = None) -> bool:
        """Whether it is time again. True counts as done."""
        now = time.monotonic()
        self._last = {each: last for each, last in self._last.items() if now - last < self._seconds}
        if what in self._last:
            return False
        self._last[what] = now
        return True
