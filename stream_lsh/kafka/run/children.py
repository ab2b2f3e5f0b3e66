"""Child processes that end with the process that starts them."""

from __future__ import annotations

import os
import sys

from stream_lsh.errors import StreamLshError

# Runs as the child before the command does. 1 is PR_SET_PDEATHSIG (linux/prctl.h).
_LAUNCHER = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class ChildEnded(StreamLshError):
    """A child process has ended. The exit code is its own, or 1 if that was 0 or a signal."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = max(code, 1)


def bound(command: list[str]) -> list[str]:
    """The command of a child that Linux kills when the thread that starts it ends, however that ends.

    Other systems run the command as it is.
    """
    if sys.platform != "linux":
        return command
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]
