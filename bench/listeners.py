"""Many listeners of events in one process: `python -m bench.listeners PORT N DOCUMENTS`.

Each reads the verdicts until it has seen so many documents. Prints, as JSON, how many each has seen, and
the gaps.
"""

from __future__ import annotations

import asyncio
import json
import sys

EVENT, GAP = b"\nevent: verdict\n", b"event: gap\n"
SILENT_SECONDS = 60.0


async def listen(port: int, wanted: int, connected: asyncio.Semaphore) -> tuple[int, int]:
    """How many verdicts one listener got, and how many gaps."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(b"GET /v1/events?kinds=verdict HTTP/1.1\r\nHost: localhost\r\n\r\n")
    seen, gaps, rest = 0, 0, b""
    await reader.readuntil(b"\n\n")  # the place where it begins
    connected.release()
    while seen < wanted:
        try:
            block = await asyncio.wait_for(reader.read(1 << 20), SILENT_SECONDS)
        except TimeoutError:
            break
        if not block:
            break
        block = rest + block
        seen, gaps = seen + block.count(EVENT), gaps + block.count(GAP)
        rest = block[-len(EVENT) + 1 :]  # shorter than any event, so that none is counted twice
    writer.close()
    return seen, gaps


async def run(port: int, listeners: int, documents: int) -> None:
    connected = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(listen(port, documents, connected)) for _ in range(listeners)]
    for _ in tasks:
        await connected.acquire()
    print("listening", flush=True)
    found = await asyncio.gather(*tasks)
    seen = [each for each, _ in found]
    print(json.dumps({"least": min(seen), "most": max(seen), "gaps": sum(gaps for _, gaps in found)}), flush=True)


if __name__ == "__main__":
    asyncio.run(run(*map(int, sys.argv[1:4])))
