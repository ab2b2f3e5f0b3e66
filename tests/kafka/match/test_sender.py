"""The producer of the match role ends soon, whatever its broker does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from stream_lsh.kafka.client import clients as module
from stream_lsh.kafka.match.sender import Sender
from stream_lsh.kafka.settings import KafkaSettings


class Client:
    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    async def close(self) -> None:
        self._calls.append("client closed")


class Part:
    """aiokafka's own sender: it waits for the answer to what is under way. close_raises: or it ends with an error."""

    close_raises: BaseException | None = None

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    async def close(self) -> None:
        self._calls.append("closing")
        if self.close_raises is not None:
            raise self.close_raises
        await asyncio.sleep(3600)


class Producer:
    def __init__(self, **options: Any) -> None:
        self.calls: list[str] = []
        self.client = Client(self.calls)
        self._sender = Part(self.calls)
        self._closed = False

    async def start(self) -> None:
        """It is there at once."""


@pytest.mark.parametrize("error", [None, KafkaError("refused"), asyncio.CancelledError()])
def test_it_is_closed_whatever_happens(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> None:
    monkeypatch.setattr(module, "AIOKafkaProducer", Producer)
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(Part, "close_raises", error)

    async def body() -> None:
        sender = Sender(KafkaSettings())
        await sender.on_start()
        assert sender._underway is not None
        producer: Any = sender._underway._producer
        await asyncio.wait_for(sender.close(), 30)
        assert producer.calls == ["closing", "client closed"] and producer._closed
        with pytest.raises(ConnectionError):
            await sender.send("topic", 0, b"value")
        await sender.close()

    asyncio.run(body())
