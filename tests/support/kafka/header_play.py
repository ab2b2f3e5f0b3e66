"""Records as only other programs send them: with header names that are not UTF-8."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.producer import message_accumulator
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

Headers = list[tuple[str, bytes]]


class Name(str):
    """A header name that aiokafka writes as these bytes."""

    def __new__(cls, raw: bytes) -> Name:
        name = super().__new__(cls, "name")
        name.raw = raw
        return name

    raw: bytes

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return self.raw


async def send(producer: AIOKafkaProducer, topic: str, values: Sequence[bytes], headers: Headers) -> None:
    """Send records in one batch to partition 0, all with these headers."""
    with pytest.MonkeyPatch.context() as patch:
        # The compiled one takes no strings of another class.
        patch.setattr(message_accumulator, "DefaultRecordBatchBuilder", _DefaultRecordBatchBuilderPy)
        batch = producer.create_batch()
        for value in values:
            assert batch.append(key=None, value=value, timestamp=None, headers=headers) is not None
        await (await producer.send_batch(batch, topic, partition=0))
