"""Deduplicate a topic with FastStream: only new documents go on.

    BOOTSTRAP_SERVERS=127.0.0.1:9092 INDEX=index python with_faststream.py

Documents are JSON objects in the topic `documents`, and new ones go to `new-documents`. A batch is in the index, and
its new documents are in the topic, before its offsets are committed. After a crash a batch is repeated: its documents
are `redelivered` then, and those that were new are sent again.
"""

import asyncio
import os
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker

from stream_lsh import Deduplicator, Settings

broker = KafkaBroker(os.environ.get("BOOTSTRAP_SERVERS", "127.0.0.1:9092"))
app = FastStream(broker)
deduplicator = Deduplicator(Settings(threshold=0.7), index=os.environ["INDEX"], commit="manual")
passed_on = broker.publisher("new-documents", batch=True)


def new_ones(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The documents that are similar to no earlier one. All are in the index afterwards."""
    verdicts = list(deduplicator.process(documents))
    deduplicator.commit()
    found = zip(documents, verdicts, strict=True)
    return [document for document, verdict in found if "unique" in (verdict.kind, verdict.first_kind)]


@broker.subscriber(
    "documents",
    batch=True,
    group_id="with-faststream",
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
async def take(documents: list[dict[str, Any]]) -> None:
    """A batch of the topic."""
    if found := await asyncio.to_thread(new_ones, documents):
        await passed_on.publish(*found)


@app.after_shutdown
def close() -> None:
    deduplicator.close()


if __name__ == "__main__":
    asyncio.run(app.run())
