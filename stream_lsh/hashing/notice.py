"""The notice that kernels are being compiled: given once, to the log by default."""

from __future__ import annotations

import logging
from collections.abc import Callable

TEXT = "compiling for this machine, once (about 10 s)"
say: Callable[[str], None] = logging.getLogger("stream_lsh").info
"""The function that gets the text."""
_said = False


def nothing(_: str) -> None:
    """A function for `say` that ignores the text."""


def compiling() -> None:
    """A kernel is about to be compiled."""
    global _said
    if not _said:
        _said = True
        say(TEXT)
