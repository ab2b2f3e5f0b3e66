"""What is said, once, when something has to be compiled: to the log, if nothing else is wanted."""

from __future__ import annotations

import logging
from collections.abc import Callable

TEXT = "compiling for this machine, once (about 10 s)"
say: Callable[[str], None] = logging.getLogger("stream_lsh").info
"""What the text is given to."""
_said = False


def nothing(_: str) -> None:
    """Say nothing."""


def compiling() -> None:
    """A kernel is about to be compiled."""
    global _said
    if not _said:
        _said = True
        say(TEXT)
