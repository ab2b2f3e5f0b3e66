"""Lines on standard input and output, without a thread for each."""

import asyncio
import os

from stream_lsh.mcp.pipes import Lines, Output


async def test_lines_longer_than_a_pipe_pass_through_it() -> None:
    """While one side waits for the other, the event loop goes on."""
    source, sink = os.pipe()
    lines = ["a" * 300_000, "\u00e9\u4e2d", "", "the end"]

    async def write() -> None:
        await Output(sink).write("\n".join(lines))
        os.close(sink)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        assert [line async for line in Lines(source)] == lines
    os.close(source)
