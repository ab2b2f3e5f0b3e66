"""Erasing by workers on a real broker: owner, standby, and a worker without a disk behind a cleaned changelog."""

import asyncio
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from support.contents import contents, unpacked_from
from support.kafka.brokers import settings_for
from support.kafka.match_play import LIMIT, Replies, all_committed, expected, frames, produce, workers
from support.kafka.replica_play import stream

from stream_lsh.documents.document import Document
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.topics import create

pytestmark = pytest.mark.long

SIZE = 16


def changing(n: int) -> tuple[list[Document], list[bytes]]:
    """Documents some of which are deleted, each behind a third of the feed, and the ids of those."""
    chance, gone = random.Random(7), list[bytes]()
    out = [replace(document, id=f"name-{i}-") for i, document in enumerate(stream(1, n))]
    for i in range(n // 3, n):
        if chance.random() < 0.1:
            old = out[i - n // 3 + chance.randrange(20)]
            if not old.deleted and b"%s" % str(old.id).encode() not in gone:
                out[i] = Document(old.id, deleted=True)
                gone.append(str(old.id).encode())
    return out, gone


async def changelog(settings: KafkaSettings) -> list[bytes]:
    """The records that are left of it, also where some go while it is read."""
    place, found = TopicPartition(Topics.of(settings).changelog, 0), list[bytes]()
    async with AIOKafkaConsumer(bootstrap_servers=settings.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        end = (await consumer.end_offsets([place]))[place]
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += [record.value or b"" for record in records]
    return found


def left(found: list[bytes], gone: list[bytes]) -> list[bytes]:
    return [name for name in gone if any(name in data for data in found)]


async def cleaned(settings: KafkaSettings, gone: list[bytes]) -> None:
    """Wait until nothing of these is in the changelog any more."""
    deadline = time.monotonic() + LIMIT
    while found := left(unpacked_from(await changelog(settings)), gone):
        assert time.monotonic() < deadline, found[:3]
        await asyncio.sleep(0.5)


async def test_what_is_deleted_leaves_folders_and_changelog(broker: Any, prefix: str, tmp_path: Path) -> None:
    given = {"shards": 1, "session_timeout_ms": 6000, "on_conflict": "update", "erase_hours": 0, "standbys": 1}
    settings = settings_for(broker, prefix, tmp_path, **given, memtable_documents=200, segment_documents=300)
    other = settings.model_copy(update={"data_folder": tmp_path / "other"})
    third = settings.model_copy(update={"data_folder": tmp_path / "third"})
    feed, gone = changing(1600)
    log = frames(settings, feed, SIZE)
    parts = len(log) * 2 // 3, len(log) - 10
    first, second = ([str(d.id).encode() for d in feed[: part * SIZE] if d.deleted] for part in parts)
    assert 10 < len(first) < len(second) < len(gone)
    replies = Replies(settings)

    await create(settings)
    with workers(tmp_path) as start:
        owner = start(settings)
        owner.wait_for("answering for the shards 0")
        standby = start(other)
        standby.wait_for("standing by for 0")
        await produce(settings, log[: parts[0]], 0.01)
        await replies.read(parts[0])
        await cleaned(settings, first)
        owner.kill()
        assert not left(contents(settings.data_folder), first)
        await produce(settings, log[parts[0] : parts[1]], 0.01)
        await replies.read(parts[1])
        await cleaned(settings, second)
        await all_committed(settings, parts[1])
        assert await asyncio.to_thread(standby.stop) == 0
        assert not left(contents(other.data_folder), second)
        newest = start(third)
        await produce(settings, log[parts[1] :])
        await replies.read(len(log))
        await cleaned(settings, gone)
        assert await asyncio.to_thread(newest.stop) == 0
        assert not left(contents(third.data_folder), gone) and not newest.says("the shard lacks")
    assert replies.found == expected(settings, log, tmp_path)
