"""Standard input and output for a server of the Model Context Protocol, without a thread for each line.

The SDK reads and writes each line in a worker thread. On a busy machine these turns take longer than the index.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

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


@asynccontextmanager
async def streams(output: int) -> AsyncIterator[tuple[Any, Any]]:
    """The messages from standard input, and those to a descriptor, as the SDK's server takes them."""
    source = Messages(Lines(0))
    async with stdio_server(cast(Any, source), cast(Any, Output(output))) as (incoming, outgoing):
        source.answer = outgoing.send
        yield incoming, outgoing


class Messages:
    """The lines that are messages. Each other line is answered with an error: the SDK drops it, and a caller would wait
    for its answer."""

    answer: Callable[[SessionMessage], Awaitable[None]]

    def __init__(self, lines: AsyncIterable[str]) -> None:
        self._lines = lines

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in self._lines:
            try:
                jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError as error:
                if line.strip():
                    await self.answer(SessionMessage(_refusal(line, error)))
            else:
                yield line


def _refusal(line: str, error: ValidationError) -> JSONRPCError:
    """The answer to a line that is no message, with the id of the request if it can be read."""
    said = error.errors()[0]
    code = PARSE_ERROR if said["type"] == "json_invalid" else INVALID_REQUEST
    try:
        id = json.loads(line)["id"]  # unlike the SDK, this reads half characters
        str(id).encode()
    except (ValueError, LookupError, TypeError, RecursionError):
        id = None
    return JSONRPCError(
        jsonrpc="2.0", id=id if type(id) in (str, int) else None,
        error=ErrorData(code=code, message=f"the line is no message: {said['msg']}"),
    )  # fmt: skip


class Lines:
    """The lines of a descriptor: a pipe, a socket, a terminal or a file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(descriptor, int)
        except OSError:  # a file: reading it never waits
            self._waits = False
        else:
            self._waits = loop.remove_reader(descriptor)

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
        if self._waits:
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
