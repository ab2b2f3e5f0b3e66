"""Child processes that end with the process that starts them."""

from __future__ import annotations

import os
import sys

# Runs as the child before the command does. 1 is PR_SET_PDEATHSIG (linux/prctl.h).
_LAUNCHER = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def bound(command: list[str]) -> list[str]:
    """The command of a child that Linux kills when the thread that starts it ends, however that ends.

    Other systems run the command as it is.
    """
    if sys.platform != "linux":
        return command
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]
