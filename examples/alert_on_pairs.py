"""Alert on pairs of near-duplicates: `python examples/alert_on_pairs.py`.

BOOTSTRAP_SERVERS and TOPIC_PREFIX name the pipeline, SIMILARITY the least similarity that is worth an alert. Runs until
Ctrl-C or SIGTERM.
"""

import asyncio
import json
import os
import signal
from contextlib import suppress

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, IllegalStateError

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "127.0.0.1:9092")
PREFIX = os.environ.get("TOPIC_PREFIX", "stream-lsh")
SIMILARITY = float(os.environ.get("SIMILARITY", "0.9"))


def alert(key, pair):
    """Stands for your receiver. After a crash it can get the same alert again, with the same key."""
    print(json.dumps({"key": key, "alert": f"{pair['newer']} is like {pair['older']}", **pair}), flush=True)


def take(record):
    """Alert on one record of the topic `pairs`, if its documents are similar enough."""
    pair = json.loads(record.value)
    if pair["similarity"] >= SIMILARITY:
        alert(f"{pair['older_seq']}-{pair['newer_seq']}", pair)


async def main():
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    consumer = AIOKafkaConsumer(
        f"{PREFIX}.pairs", bootstrap_servers=SERVERS, group_id=f"{PREFIX}.alert-on-pairs", auto_offset_reset="earliest",
        isolation_level="read_committed", enable_auto_commit=False,
    )  # fmt: skip
    async with consumer:
        while not stop.is_set():
            for place, records in (await consumer.getmany(timeout_ms=500)).items():
                for record in records:
                    take(record)
                # Only now: pairs without an alert are read again after a crash. Where the commit fails, another
                # consumer has the partition, and repeats these records.
                with suppress(CommitFailedError, IllegalStateError):
                    await consumer.commit({place: records[-1].offset + 1})


if __name__ == "__main__":
    asyncio.run(main())
