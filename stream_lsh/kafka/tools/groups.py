"""The state of the role group, copied into a folder that can be read like an index with groups."""

from __future__ import annotations

from pathlib import Path

from aiokafka import TopicPartition

from stream_lsh.embedded.group_store import FACT
from stream_lsh.errors import StoreError
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.kafka.client.connection import admin, explained
from stream_lsh.kafka.client.reading import existing, read_from, reading, records_to
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings

HINT = " with groups = true, and workers keep groups; for those of an index give --index"


async def fetch(settings: KafkaSettings, folder: Path) -> None:
    """Read the whole changelog of groups into the folder.

    Raises:
        BrokerError: Kafka cannot be reached, or has no such topic.
        StoreError: there are no groups yet.
    """
    place = TopicPartition(Topics.of(settings).group_changelog, 0)
    store = Store(folder / "db", sync=False)
    with explained(settings):
        async with admin(settings) as client:
            await existing(client, settings, place.topic, HINT)
        async with reading(settings) as consumer:
            read_from(consumer, await consumer.beginning_offsets([place]))
            async for _, found in records_to(consumer, await consumer.end_offsets([place])):
                changes = {record.key: record.value for record in found}
                values = {key: value for key, value in changes.items() if value is not None}
                store.write(values, deleted=changes.keys() - values.keys())
    there = store.named(FACT) is not None
    store.close()
    if not there:
        raise StoreError(f"{place.topic} has nothing yet: no worker has folded groups")
