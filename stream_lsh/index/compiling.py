"""The very first start: the kernel of the index is compiled beside the others, by a process of its own.

Numba compiles one kernel at a time in a process, and this one takes as long as all others together. What the other
process has compiled is loaded from the cache; if it fails, whoever needs the kernel compiles it himself.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

from numba import types

from stream_lsh.hashing import kernels
from stream_lsh.index.match import match
from stream_lsh.index.work import Work

_process: subprocess.Popen[bytes] | None = None


def begin() -> None:
    """Compile the kernel, if nothing is compiled yet."""
    global _process
    if _process is None and kernels.FOLDER is not None and kernels.cold():
        silent = subprocess.DEVNULL
        command = [sys.executable, "-P", "-m", __name__]  # -P: nothing is imported from where the caller happens to be
        with suppress(OSError):
            _process = subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent)


def wait() -> None:
    """Until it is compiled."""
    if _process is not None:
        _process.wait()


if __name__ == "__main__":
    match.compile((types.int64, types.int64, Work.numba_type))
