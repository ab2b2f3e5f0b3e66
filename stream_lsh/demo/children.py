"""The commands that the demo on Kafka runs as processes of their own, each with its log in a file."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from stream_lsh.kafka.run.children import ChildEnded, bound

LINES = 12
"""Of the log of a process that has ended by itself."""


class Child:
    """A `stream-lsh` command with all its processes.

    Attributes:
        log: the file that has all that it writes.
    """

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @classmethod
    async def start(cls, name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> Child:
        """Start it. It gets no Ctrl-C from the terminal, and Linux kills it if this process is killed."""
        command = bound([sys.executable, "-P", "-m", "stream_lsh", *arguments])
        with log.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True
            )
        return cls(name, process, log)

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def watch(self) -> None:
        """Wait until it ends. Raises ChildEnded: always; with the last lines of its log."""
        code = await self._process.wait()
        how = f"code {code}" if code >= 0 else f"signal {-code}"
        lines = self.last_lines() or ["(nothing)"]
        raise ChildEnded("\n  ".join([f"the {self.name} ended with {how}; its log {self.log} ends with", *lines]), code)

    async def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()

    async def kill(self) -> None:
        """End it and its processes at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    def last_lines(self, most: int = LINES) -> list[str]:
        """The last lines of its log that are not empty."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if line.strip()][-most:]
