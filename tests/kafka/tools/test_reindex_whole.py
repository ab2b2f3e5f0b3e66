"""`stream-lsh kafka reindex` with all stages: interrupted and run again, then the workers go on where it ended."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from stream_lsh.demo.feed import feed_lines
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.topics import create

DOCUMENTS = 1500
PATIENCE = 300.0
FIELDS = ["--text-field", "title", "--text-field", "text"]


async def send(settings: KafkaSettings, lines: list[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers) as producer:
        topic = Topics.of(settings).documents
        await asyncio.gather(*[await producer.send(topic, line, partition=n % 2) for n, line in enumerate(lines)])


async def read(settings: KafkaSettings, topic: str, number: int) -> list[dict[str, Any]]:
    """Committed records from the beginning, when there are so many; a little later, so that more would be seen."""
    async with AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers, isolation_level="read_committed"
    ) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(2)])
        await consumer.seek_to_beginning()
        found: list[dict[str, Any]] = []
        end = time.monotonic() + PATIENCE
        while len(found) < number:
            assert time.monotonic() < end, f"{len(found)} of {number} verdicts"
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += [json.loads(record.value) for record in records]
        for records in (await consumer.getmany(timeout_ms=1000)).values():
            found += [json.loads(record.value) for record in records]
        return found


def sources(verdicts: list[dict[str, Any]]) -> Counter[tuple[int, int]]:
    """How often each place in the documents topic was judged."""
    return Counter((verdict["source"]["partition"], verdict["source"]["offset"]) for verdict in verdicts)


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stream_lsh.cli", *words], stderr=subprocess.PIPE, text=True, cwd=folder
    )


def test_rebuild_and_go_on(broker: Any, prefix: str, tmp_path: Path) -> None:
    old = KafkaSettings(bootstrap_servers=broker.bootstrap, topic_prefix=prefix, partitions=2)
    lines = [line.strip() for line in feed_lines(DOCUMENTS + 200, 5)]
    first, more = lines[:DOCUMENTS], lines[DOCUMENTS:]
    asyncio.run(create(old))
    asyncio.run(send(old, first))

    words = [
        "kafka",
        "reindex",
        "--to-prefix",
        f"{prefix}-2",
        "--topic-prefix",
        prefix,
        "--compare-with",
        "all",
        "--shards",
        "2",
    ]
    words += [*FIELDS, "--bootstrap-servers", broker.bootstrap]
    run = start(tmp_path, *words, "--log-level", "info")
    assert run.stderr is not None
    said = ""
    for line in run.stderr:
        said += line
        if "answering for" in line:
            run.send_signal(signal.SIGINT)
            break
    said += run.stderr.read()  # not communicate(): it does not know what was read ahead
    run.wait(PATIENCE)
    # It may have been fast enough.
    assert (run.returncode == 130 and "run the same command again to go on" in said) or "To switch" in said

    run = start(tmp_path, *words)
    _, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, said
    assert f"{len(first):,} documents judged" in said
    verdicts = f"{prefix}-2.verdicts"
    found = asyncio.run(read(old, verdicts, len(first)))
    assert sources(found) == Counter((n % 2, n // 2) for n in range(len(first)))

    command = next(line.split() for line in said.splitlines() if "stream-lsh kafka worker" in line)
    worker = start(tmp_path, *command[1:])
    try:
        asyncio.run(send(old, more))
        found = asyncio.run(read(old, verdicts, len(lines)))
        assert max(sources(found).values()) == 1 and len(found) == len(lines)
    finally:
        worker.terminate()
        _, said = worker.communicate(timeout=PATIENCE)
    assert worker.returncode == 0, said
