"""Give memory that was freed back to the system: glibc keeps it for itself, some 150 MB under the large arrays of
flushes and merges."""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Return free pages of the heap; nothing where the C library has no such call."""
    if _trim is not None:
        _trim(0)


def map_large() -> None:
    """Have what is freed go back at once from 4 MB on, for good. glibc begins like that, but learns: whatever is as
    large as what was freed once, up to 32 MB, it keeps for itself from then on."""
    if _mallopt is not None:
        _mallopt(_MMAP_THRESHOLD, 4 << 20)


_MMAP_THRESHOLD = -3  # in malloc.h
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
_mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
