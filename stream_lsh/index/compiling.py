"""The very first start: the kernel of the index is compiled beside the others, by a process of its own.

Numba compiles one kernel at a time in a process, and this one takes as long as all others together. What the other
process has compiled is loaded from the cache; if it fails, the kernel is compiled where it is needed.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress

from numba import types

from stream_lsh.hashing import cache
from stream_lsh.index.match import match
from stream_lsh.index.work import Work

TYPES = (types.int64, types.int64, Work.numba_type)
_begun = False


def begin() -> subprocess.Popen[bytes] | None:
    """Compile the kernel, if that has not been done yet. Returns the process that does it, if there is one."""
    global _begun
    begun, _begun = _begun, True
    if not begun and cache.FOLDER is not None and not match.ready(*TYPES):
        silent = subprocess.DEVNULL
        command = [sys.executable, "-P", "-m", __name__]  # -P: nothing is imported from where the caller happens to be
        with suppress(OSError):
            process = subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent)
            threading.Thread(target=process.wait, name="compiling", daemon=True).start()
            return process
    return None


if __name__ == "__main__":
    match.compile(TYPES)
