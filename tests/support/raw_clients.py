"""A service in this process, and clients that write bytes to its socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from stream_lsh.serve.address import Address, listen
from stream_lsh.serve.service import Limits, Service
from stream_lsh.settings.model import Settings
from support.waiting import PATIENCE

TEXT = "The council has voted for the new {0} bridge over the {0} river; work begins in {0} and takes {0} years."
LIMITS = Limits()


def line(name: str) -> bytes:
    return json.dumps({"id": name, "text": TEXT.format(name)}).encode() + b"\n"


def head(length: int | str, path: str = "/v1/documents", kind: str = "application/x-ndjson") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n".encode()
    )


@asynccontextmanager
async def serving(folder: Path, limits: Limits = LIMITS, **settings: Any) -> AsyncIterator[tuple[int, Service]]:
    """A service, and its port."""
    from stream_lsh.serve import server  # here: it takes long to import

    services: list[Service] = []

    def service_of(failed: Callable[[BaseException], None]) -> Service:
        services.append(Service(Settings(**settings), folder / "index", limits=limits, failed=failed))
        return services[0]

    (listening, address), stop, started = listen(Address(port=0)), asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(server.run(service_of, address, listening, stop, lambda _: started.set()))
    await started.wait()
    try:
        async with asyncio.timeout(2 * PATIENCE):
            yield address.port, services[0]
    finally:
        stop.set()
        await running


def asking(port: int) -> httpx.AsyncClient:
    """A client of a service here."""
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)


async def until(what: Callable[[], object]) -> None:
    while not what():
        await asyncio.sleep(0.01)


async def say(port: int, *pieces: bytes, pause: float = 0.0) -> bytes:
    """What a client hears until it is cut off, or, if it says nothing more, its answer ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def added(port: int, name: str) -> bool:
    """Whether a document of an honest client is taken."""
    request = head(len(line(name)), kind="application/json").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    return b" 200 " in (await say(port, request + line(name))).partition(b"\r\n")[0]
