"""Let only unique documents through to an indexer: `python examples/unique_to_indexer.py`.

BOOTSTRAP_SERVERS and TOPIC_PREFIX name the pipeline. Runs until Ctrl-C or SIGTERM.
"""

import asyncio
import json
import os
import signal
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "127.0.0.1:9092")
PREFIX = os.environ.get("TOPIC_PREFIX", "stream-lsh")
OPTIONS = {
    "bootstrap_servers": SERVERS, "isolation_level": "read_committed", "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
}  # fmt: skip


def index(action, id, document=None):
    """Stands for your indexer. It must be idempotent: after a crash the same action is repeated."""
    print(json.dumps({"action": action, "id": id, "document": document}), flush=True)


async def take(record, documents):
    """Pass one record of the topic `unique` to the indexer."""
    if record.value is not None:
        document = json.loads(record.value)
        return index("put", document["id"], document)
    headers = dict(record.headers)  # a tombstone: a kept document was deleted, or its new version was dropped
    if "id" in headers:
        index("delete", json.loads(headers["id"]))
    if "new-representative" in headers:  # a document that was dropped before is kept from now on
        topic, partition, offset = (
            headers[f"new-representative-{name}"].decode() for name in ("topic", "partition", "offset")
        )
        place = TopicPartition(topic, int(partition))
        documents.assign([place])
        documents.seek(place, int(offset))
        found = await documents.getone()
        if found.offset == int(offset):  # otherwise Kafka has deleted it
            index("put", json.loads(headers["new-representative"]), json.loads(found.value))


async def main():
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    unique = AIOKafkaConsumer(f"{PREFIX}.unique", group_id=f"{PREFIX}.indexer", **OPTIONS)
    async with unique, AIOKafkaConsumer(**OPTIONS) as documents:
        while not stop.is_set():
            for place, records in (await unique.getmany(timeout_ms=500)).items():
                for record in records:
                    await take(record, documents)
                # Only now: what the indexer has not taken is read again after a crash. Where the commit fails, another
                # consumer has the partition, and repeats these records.
                with suppress(CommitFailedError, IllegalStateError):
                    await unique.commit({place: records[-1].offset + 1})


if __name__ == "__main__":
    asyncio.run(main())
