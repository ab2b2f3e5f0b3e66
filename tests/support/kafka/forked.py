"""Processes of `stream-lsh` that begin with everything imported: a start costs a quarter of one from nothing.

A server without threads, which has imported the program, forks them. Each is a child of the test's process, which waits
for it as for one of `subprocess`. As a program, this module is the server.
"""

import ctypes
import gc
import json
import os
import pkgutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_server: subprocess.Popen[str] | None = None


class Forked:
    """A process, as `subprocess.Popen` has it."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        """Start `stream-lsh` with these arguments, in a process group of its own; log: gets all that it writes."""
        server = _started()
        assert server.stdin is not None and server.stdout is not None
        print(json.dumps([str(log), *arguments]), file=server.stdin, flush=True)
        self.pid = int(server.stdout.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("stream-lsh", timeout)
            time.sleep(0.02)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def without_settings() -> dict[str, str]:
    """The environment, but for settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("STREAM_LSH_")}


def _started() -> subprocess.Popen[str]:
    global _server
    if _server is None or _server.poll() is not None:
        # What a child leaves behind when it ends is ours: so are the processes that the server forks.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _server = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=without_settings(),
        )
    return _server


def main() -> None:
    from stream_lsh.cli import main as stream_lsh
    from stream_lsh.kafka.run.process import STAGES

    for path in ("stream_lsh.cli.kafka.worker:worker", "stream_lsh.embedded.warming:warm_up", *STAGES.values()):
        pkgutil.resolve_name(path)
    gc.freeze()  # nothing of it is looked at, and so copied, in the children
    while line := sys.stdin.readline():
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            continue
        parent = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == parent:  # until it is a child of the test's process
            time.sleep(0.001)
        os.write(1, b"%d\n" % os.getpid())
        log, *arguments = json.loads(line)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        stream_lsh(arguments, prog_name="stream-lsh")


if __name__ == "__main__":
    main()
