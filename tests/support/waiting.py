"""Waiting for a state, for as long as a machine may need that is slow, or busy with other things."""

import time
from collections.abc import Callable

PATIENCE = 300.0
"""Seconds for what should take a few: the first life of a worker compiles or loads kernels, and five test processes may
share two cores."""


def until(what: Callable[[], object], patience: float = PATIENCE, why: str = "it did not happen") -> None:
    """Wait for a condition."""
    end = time.monotonic() + patience
    while not what():
        assert time.monotonic() < end, why
        time.sleep(0.05)
