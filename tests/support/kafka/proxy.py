"""A TCP proxy between workers and a broker: it delays, cuts and freezes connections, and turns new ones away.

The broker has to advertise the proxy's port: `proxied_broker` makes such a one.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stream_lsh.kafka.tools.broker import KafkaBroker, free_ports

CHUNK = 1 << 16


class _Connection:
    """One client's connection and the one to the broker that belongs to it."""

    def __init__(self, proxy: Proxy, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._ends = (near, far)

    def cut(self) -> None:
        """Reset both sides; what was on its way is lost."""
        for end in self._ends:
            end.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Bytes of one direction, each chunk as late as the proxy says when it comes."""
        loop = asyncio.get_running_loop()
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)

        async def deliver() -> None:
            while True:
                due, data = await late.get()
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                await self._proxy.open.wait()
                writer.write(data)
                await writer.drain()
                if not data:
                    return

        delivery = asyncio.create_task(deliver())
        try:
            while True:
                data = await reader.read(CHUNK)
                if not data:
                    break
                await late.put((loop.time() + self._proxy.latency(), data))
            await late.put((0.0, b""))
            await delivery
        finally:
            delivery.cancel()


class Proxy:
    """Listens on `port` of 127.0.0.1 (0: any) and passes everything on to `target`, a port of 127.0.0.1.

    It runs in a thread of its own; all methods may be called from others. delay, jitter: seconds that bytes are late,
    the same and up to that much more, in each direction.
    """

    def __init__(self, target: int, port: int = 0, *, delay: float = 0.0, jitter: float = 0.0, seed: int = 0) -> None:
        self.target = target
        self.port = port
        self.delay, self.jitter = delay, jitter
        self._chance = random.Random(seed)
        self._refusing = False
        self._alive: dict[asyncio.Task[None], _Connection] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        self._wait(self._listen())

    def close(self) -> None:
        """Cut everything and end the thread."""
        if self._thread.is_alive():
            self._wait(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    def latency(self) -> float:
        """Seconds that the next bytes are late."""
        return self.delay + (self._chance.random() * self.jitter if self.jitter else 0.0)

    def cut(self, share: float = 1.0) -> int:
        """Cut each connection with this probability; how many were."""
        return int(self._call(lambda: self._cut(share)))

    def freeze(self) -> None:
        """Hold all bytes back, in both directions; connections stay."""
        self._call(lambda: self.open.clear())

    def thaw(self) -> None:
        """Let go what `freeze` held back."""
        self._call(lambda: self.open.set())

    def refuse(self, refusing: bool = True) -> None:
        """Turn new connections away at once."""
        self._refusing = refusing

    def _call(self, what: Callable[[], Any]) -> Any:
        async def done() -> Any:
            return what()

        return self._wait(done())

    def _wait(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(20)

    async def _listen(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        self._server.close()
        self._cut(1.0)
        tasks = list(self._alive)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)

    def _cut(self, share: float) -> int:
        chosen = [connection for connection in self._alive.values() if self._chance.random() < share]
        for connection in chosen:
            connection.cut()
        return len(chosen)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target, limit=CHUNK)
        except OSError:  # the broker is down
            writer.transport.abort()
            return
        connection = _Connection(self, writer, far_writer)
        task = asyncio.current_task()
        assert task is not None
        self._alive[task] = connection
        ways = [
            asyncio.create_task(connection.carry(reader, far_writer)),
            asyncio.create_task(connection.carry(far_reader, writer)),
        ]
        try:
            # One side's end is the end of both, as with Kafka's clients and brokers.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*ways, return_exceptions=True)
            connection.cut()
            del self._alive[task]


@dataclass(frozen=True, slots=True)
class Proxied:
    """A running broker of our own; proxies: what it advertises besides its plain listener."""

    broker: KafkaBroker
    proxies: list[Proxy]


def proxied_broker(folder: Path, version: str, names: Sequence[str] = ("PROXIED",)) -> tuple[KafkaBroker, list[Proxy]]:
    """A broker, not started, with further listeners advertised at proxies that run; clients stay with their proxy."""
    plain, control, *ports = free_ports(2 + len(names))
    proxies = [Proxy(port, seed=number) for number, port in enumerate(ports)]
    for proxy in proxies:
        proxy.start()
    listeners = {"PLAINTEXT": plain, **dict(zip(names, ports, strict=True)), "CONTROLLER": control}
    advertised = {"PLAINTEXT": plain, **{name: proxy.port for name, proxy in zip(names, proxies, strict=True)}}
    properties = {
        "controller.quorum.voters": f"1@127.0.0.1:{control}",
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in advertised.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
    }
    return KafkaBroker(folder, version, plain, properties=properties), proxies
