"""Return freed memory to the system. glibc keeps it, some 150 MB after the large arrays of flushes and merges."""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Return free pages of the heap; does nothing where the C library has no such call."""
    if _trim is not None:
        _trim(0)


def map_large() -> None:
    """Return freed blocks of 4 MB and more to the system at once, permanently. By default glibc raises this limit to
    the largest block freed, up to 32 MB, and keeps smaller ones."""
    if _mallopt is not None:
        _mallopt(_MMAP_THRESHOLD, 4 << 20)


_MMAP_THRESHOLD = -3  # in malloc.h
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
_mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
