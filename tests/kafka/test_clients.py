"""Clients that meet a broker which is not ready, or do not get an answer any more."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, errors
from aiokafka.admin import AIOKafkaAdminClient
from kafka_helpers import settings_for

from stream_lsh.kafka.clients import CLOSE_SECONDS, producing
from stream_lsh.kafka.connection import FINAL, admin
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.stage import may_pass
from stream_lsh.kafka.topics import Topics, create


def test_a_broker_that_knows_of_no_brokers_yet_has_only_just_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def started(self: AIOKafkaAdminClient) -> None:
        """Answered, but without brokers: as for a moment after a broker's restart."""

    monkeypatch.setattr(AIOKafkaAdminClient, "start", started)

    async def body() -> None:
        async with admin(KafkaSettings()):
            raise AssertionError("it has no brokers")

    with pytest.raises(errors.KafkaConnectionError, match="just started") as caught:
        asyncio.run(body())
    assert may_pass(caught.value) and not isinstance(caught.value, FINAL)


def test_a_producer_is_closed_without_what_it_cannot_deliver(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path, partitions=1)

    async def body() -> None:
        await create(settings)
        async with producing(settings, "sign") as producer:
            _cut(producer)
            future = await producer.send(Topics.of(settings).signatures, b"x", partition=0)
            await asyncio.sleep(0.5)
            assert not future.done()
            began = time.monotonic()
        assert time.monotonic() - began < 3 * CLOSE_SECONDS

    asyncio.run(body())


def _cut(producer: AIOKafkaProducer) -> None:
    """From now on no request of this producer is answered."""

    async def never(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    producer.client.send = never
