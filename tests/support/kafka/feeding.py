"""Documents for the pipeline under test: real ones, with bad, repeated and reused ones among them; producing them."""

import asyncio
import json
import lzma
import random
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

POSTS = ("posts-120k.jsonl.xz", ("title", "text"))
TERMS = ("terms-3k.jsonl.xz", ("text",))

Source = tuple[int, int]  # partition, offset


@dataclass(frozen=True, slots=True)
class Record:
    """A record to be produced, or as it was read (then with its offset)."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int | None = None
    offset: int = -1

    @property
    def source(self) -> Source:
        return self.partition, self.offset

    @property
    def original(self) -> tuple[object, ...]:
        """What `unique` has to pass on unchanged."""
        return self.key, self.value, self.headers, self.timestamp


def lines(data: Path, corpus: str, n: int) -> Iterator[bytes]:
    """The first n lines of a corpus, without their newlines."""
    with lzma.open(data / corpus) as file:
        for line in islice(file, n):
            yield line.rstrip(b"\n")


def feed_of(documents: Iterable[bytes], seed: int) -> list[bytes]:
    """Documents with bad lines, redelivered ones, near-duplicates and reused ids among them."""
    chance = random.Random(seed)
    kept: list[bytes] = []
    out: list[bytes] = []
    for line in documents:
        out.append(line)
        dice = chance.random()
        if dice < 0.03:
            kept.append(line)
        elif dice < 0.045 and kept:
            out.append(chance.choice(kept))
        elif dice < 0.05:
            out.append(line[: len(line) // 2])
        elif dice < 0.055 and kept:
            out.append(chance.choice(kept).replace(b'"title": "', b'"title": "changed '))
        elif dice < 0.08 and kept:
            copy = chance.choice(kept).replace(b'"id": "', b'"id": "copy-%d-' % len(out))
            out.append(copy if dice < 0.06 else copy.replace(b'"title": "', b'"title": "again '))
    return out


def records_of(values: Sequence[bytes], partitions: int, seed: int) -> list[Record]:
    """Records with the id as the key (if there is one), spread over the partitions, some with headers of a trace."""
    chance = random.Random(seed)
    now = time.time_ns() // 1_000_000  # not some time: what is older than the retention is deleted at once
    out = []
    for number, value in enumerate(values):
        try:
            key = str(json.loads(value)["id"]).encode()
        except ValueError:
            key = None
        headers: tuple[tuple[str, bytes], ...] = ()
        if chance.random() < 0.1:
            headers = (("traceparent", b"00-%032x-%016x-01" % (number + 1, number + 1)), ("other", b"\xff\x00"))
        out.append(Record(chance.randrange(partitions), key, value, headers, now + number))
    return out


def changing(records: Sequence[Record], seed: int) -> list[Record]:
    """Records, and others between them: texts under ids that were there before, and deletions by a field or a key."""
    chance = random.Random(seed)
    out: list[Record] = []
    known: list[Record] = []
    for record in records:
        out.append(record)
        dice = chance.random()
        if known and dice < 0.25:
            old = chance.choice(known[-300:])
            value = None
            if dice < 0.1 and record.value is not None and old.key is not None:
                with suppress(ValueError):  # of what is no JSON
                    value = json.dumps({**json.loads(record.value), "id": old.key.decode()}).encode()
            elif dice < 0.16 and old.key is not None:
                value = json.dumps({"id": old.key.decode(), "deleted": True}).encode()
            out.append(replace(record, key=old.key, value=value))
        if record.key is not None:
            known.append(record)
    return out


async def produce(
    bootstrap: str, topic: str, records: Iterable[Record], rate: float | None = None,
    stop: threading.Event | None = None,
) -> int:  # fmt: skip
    """Produce records, at a rate or as fast as it goes; waits out a broker that is away. How many were sent."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", linger_ms=5, max_batch_size=256 << 10,
        max_request_size=32 << 20, request_timeout_ms=300_000, retry_backoff_ms=50,
    )  # fmt: skip
    await producer.start()
    sent = lost = 0
    pending: set[asyncio.Future[Any]] = set()
    began = time.monotonic()
    try:
        for record in records:
            if stop is not None and stop.is_set():
                break
            if rate is not None and (ahead := sent / rate - (time.monotonic() - began)) > 0:
                await asyncio.sleep(ahead)
            future = await producer.send(
                topic, record.value, record.key, record.partition, record.timestamp, list(record.headers)
            )
            pending.add(future)
            sent += 1
            if len(pending) > 5000:
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for done in await asyncio.gather(*pending, return_exceptions=True):
            if isinstance(done, KafkaError):
                lost += 1
            elif isinstance(done, BaseException):
                raise done
    finally:
        await producer.stop()
    return sent - lost


class Feed(threading.Thread):
    """Documents that flow while something else happens."""

    def __init__(self, bootstrap: str, topic: str, records: Iterable[Record], rate: float) -> None:
        super().__init__(name="feed", daemon=True)
        self._records, self._rate = records, rate
        self._servers, self._topic = bootstrap, topic
        self._stopping = threading.Event()
        self.sent = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.sent = asyncio.run(produce(self._servers, self._topic, self._records, self._rate, self._stopping))
        except BaseException as error:
            self.error = error

    def end(self, timeout: float = 300) -> int:
        """Wait until all is produced; how many."""
        self.join(timeout)
        assert not self.is_alive(), "the feed did not end"
        if self.error is not None:
            raise self.error
        return self.sent

    def stop(self) -> int:
        """Produce no more."""
        self._stopping.set()
        return self.end()
