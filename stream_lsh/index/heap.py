"""Give memory that was freed back to the system: glibc keeps it for itself, some 150 MB under the large arrays of
flushes and merges."""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Return free pages of the heap; nothing where the C library has no such call."""
    if _trim is not None:
        _trim(0)


_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
