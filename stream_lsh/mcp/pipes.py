"""Standard input and output for a server of the Model Context Protocol, without a thread for each line.

The SDK reads and writes each line in a worker thread. On a busy machine these turns take longer than the index.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, cast

from mcp.server.stdio import stdio_server

READ = 65536  # bytes at a time


@contextmanager
def output_taken() -> Iterator[int]:
    """A descriptor of standard output, while what others print goes to standard error."""
    taken = os.dup(1)
    os.dup2(2, 1)
    try:
        yield taken
    finally:
        os.dup2(taken, 1)
        os.close(taken)


def streams(output: int) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    """The messages from standard input, and those to a descriptor, as the SDK's server takes them."""
    try:
        source = Lines(0)
    except OSError:  # no pipe, but a file: the SDK reads it
        source = None
    return stdio_server(cast(Any, source), cast(Any, Output(output)))


class Lines:
    """The lines of a descriptor that an event loop can wait for: a pipe, a socket or a terminal.

    Raises:
        OSError: it is another file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, int)
        loop.remove_reader(descriptor)

    async def __aiter__(self) -> AsyncIterator[str]:
        parts: list[bytes] = []  # of a line that has not ended
        while found := await self._read():
            *ended, rest = found.split(b"\n")
            for line in ended:
                yield b"".join((*parts, line)).decode(errors="replace")
                parts = []
            parts.append(rest)
        if any(parts):
            yield b"".join(parts).decode(errors="replace")

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        await _ready(loop.add_reader, loop.remove_reader, self._descriptor)
        return os.read(self._descriptor, READ)


class Output:
    """Writes to a descriptor, and lets the event loop go on while the reader is slow."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    async def write(self, text: str) -> None:
        data = memoryview(text.encode())
        loop = asyncio.get_running_loop()
        while len(data):
            if not self._poll.poll(0):
                await _ready(loop.add_writer, loop.remove_writer, self._descriptor)
            data = data[os.write(self._descriptor, data[: select.PIPE_BUF]) :]  # so much does not block

    async def flush(self) -> None:
        """Nothing is held back."""


async def _ready(add: Callable[..., None], remove: Callable[[int], object], descriptor: int) -> None:
    """Wait until a descriptor can be read or written."""
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)
