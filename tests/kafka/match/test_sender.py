"""The producer of the match role ends soon, whatever its broker does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from stream_lsh.kafka.match import sender as module
from stream_lsh.kafka.match.sender import Sender


class Client:
    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    async def close(self) -> None:
        self._calls.append("client closed")


class Part:
    """aiokafka's own sender: it waits for the answer to what is under way."""

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    async def close(self) -> None:
        self._calls.append("closing")
        await asyncio.sleep(3600)


class Producer:
    """stop: an error that it raises, or None: it never ends."""

    stop_raises: BaseException | None = None

    def __init__(self, **options: Any) -> None:
        self.calls: list[str] = []
        self.client = Client(self.calls)
        self._sender = Part(self.calls)
        self._closed = False

    async def start(self) -> None:
        """It is there at once."""

    async def stop(self) -> None:
        self.calls.append("stop")
        if self.stop_raises is not None:
            raise self.stop_raises
        await asyncio.sleep(3600)


@pytest.mark.parametrize("now", [False, True])
@pytest.mark.parametrize("error", [None, KafkaError("refused"), asyncio.CancelledError()])
def test_it_is_closed_whatever_happens(monkeypatch: pytest.MonkeyPatch, error: BaseException | None, now: bool) -> None:
    monkeypatch.setattr(module, "AIOKafkaProducer", Producer)
    monkeypatch.setattr("stream_lsh.kafka.client.clients.CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(Producer, "stop_raises", error)

    async def body() -> None:
        sender = Sender({}, 1000, 1000)
        await sender.on_start()
        producer: Any = sender._producer
        await asyncio.wait_for(sender.close(now=now), 30)
        assert producer.calls == ["stop"] * (not now) + ["closing", "client closed"]
        with pytest.raises(ConnectionError):
            await sender.send("topic", 0, b"value")
        await sender.close()

    asyncio.run(body())
