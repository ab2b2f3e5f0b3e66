"""Connections between processes and the nodes of a simulated Kafka: bytes that take time, in order, or do not arrive.

What can happen to a request is decided one by one (`Network.fault`). TCP loses nothing without losing the connection,
so a lost request or answer ends it, and the client asks again over another one.
"""

from __future__ import annotations

import asyncio
import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from support.simulation import wire
from support.simulation.clock import Clock
from support.simulation.world import Loop, Process, World

_SIZE = struct.Struct(">i")


class Fault(Enum):
    """What happens to a request besides what should."""

    LOST = "the connection ends before the request arrives"
    ANSWER_LOST = "the request is served, and the connection ends before the answer arrives"
    SERVED_LATE = "the connection ends, and the request is served so many seconds later, perhaps after its repetition"


NEVER_LATE = frozenset({"AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"})
"""Requests whose answer is lost instead of SERVED_LATE. Real Kafka has that hole: transactions of a producer have no
number, so a late request of one counts for the next (KIP-890 mends it for newer clients than aiokafka)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one request: a fault, and seconds by which its answer (with SERVED_LATE, its service) is late."""

    fault: Fault | None = None
    late: float = 0.0


GOOD = Outcome()


class Node(Protocol):
    """A broker, as the network sees it."""

    up: bool

    def serve(self, head: wire.Head, ask: dict[str, Any], reply: Callable[[dict[str, Any] | None], None]) -> None: ...


class Transport(asyncio.Transport):
    """The client's end of a connection. The order of bytes is kept in both directions."""

    def __init__(self, network: Network, loop: Loop, protocol: Any, node: Node) -> None:
        super().__init__()
        self.network, self.loop, self.protocol, self.node = network, loop, protocol, node
        self.closed = False
        self._received, self._waiting, self._busy = b"", list[bytes](), False
        self._there, self._back = 0.0, 0.0  # when the last bytes arrive

    def write(self, data: Any) -> None:
        if not self.closed:
            self._there = _after(self._there, Clock.now + self.network.world.latency())
            self.network.loop.call_at(self._there, self._arrived, bytes(data))

    def _arrived(self, data: bytes) -> None:
        if self.closed or not self.node.up:
            return
        self._received += data
        while len(self._received) >= 4:
            (size,) = _SIZE.unpack_from(self._received)
            if len(self._received) < 4 + size:
                break
            self._waiting.append(self._received[4 : 4 + size])
            self._received = self._received[4 + size :]
        self._next()

    def _next(self) -> None:
        """Serve the next request. A broker looks at it only when the one before is answered."""
        if self._busy or not self._waiting or self.closed:
            return
        self._busy = True
        head, ask = wire.decoded(self._waiting.pop(0))
        network = self.network
        if network.noted:
            network.world.note(self.loop.process, head.name)
        outcome = network.fault(self.loop.process, head, ask)
        if outcome.fault is Fault.LOST:
            return self._broken(head, outcome.fault)
        if outcome.fault is Fault.SERVED_LATE and head.name not in NEVER_LATE:
            network.loop.call_later(outcome.late, self.node.serve, head, ask, lambda fields: None)
            return self._broken(head, outcome.fault)

        def reply(fields: dict[str, Any] | None) -> None:
            self._busy = False
            if outcome.fault is not None:
                return self._broken(head, outcome.fault)
            if fields is not None and not self.closed:
                self._back = _after(self._back, Clock.now + network.world.latency() + outcome.late)
                self.loop.call_at(self._back, self._deliver, wire.encoded(head, fields))
            if self._waiting:
                network.loop.call_soon(self._next)
            return None

        self.node.serve(head, ask, reply)
        return None

    def _broken(self, head: wire.Head, fault: Fault) -> None:
        self.network.world.note(self.loop.process, head.name, fault.name)
        self.reset()

    def _deliver(self, data: bytes) -> None:
        if not self.closed:
            self.protocol.data_received(data)

    def reset(self) -> None:
        """The connection ends, and the client sees that a packet later."""
        if not self.closed:
            self.closed = True
            self.network.transports.pop(self, None)
            error = ConnectionResetError(104, "Connection reset by peer")
            self.loop.call_later(self.network.world.latency(), self.protocol.connection_lost, error)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.network.transports.pop(self, None)
            self.loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """What is under way arrives all the same: the buffers of a client have room for it."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 0) if name in ("sockname", "peername") else default


def _after(before: float, time: float) -> float:
    """The time, or one just after `before`: timers of the same time fall due in any order."""
    return max(math.nextafter(before, math.inf), time)


class Network:
    """All connections. fault: decides what happens to each request; noted: whether each is in the trace."""

    def __init__(self, world: World, loop: Loop, nodes: dict[tuple[str, int], Node]) -> None:
        self.world, self.loop, self._nodes = world, loop, nodes
        self.transports: dict[Transport, None] = {}
        self.fault: Callable[[Process, wire.Head, dict[str, Any]], Outcome] = lambda process, head, ask: GOOD
        self.noted = bool(os.environ.get("SIMULATION_TRACE"))

    def connect(self, loop: Loop, factory: Callable[[], Any], host: str, port: int) -> tuple[Transport, Any]:
        """A new connection.

        Raises:
            ConnectionRefusedError: the node is down.
        """
        node = self._nodes[host, port]
        if not node.up:
            raise ConnectionRefusedError(111, "Connection refused")
        protocol = factory()
        transport = Transport(self, loop, protocol, node)
        self.transports[transport] = None
        protocol.connection_made(transport)
        return transport, protocol

    def reset(self, of: Process | Node) -> None:
        """End all connections of a process, or to a node."""
        for transport in [t for t in self.transports if of in (t.loop.process, t.node)]:
            transport.reset()
