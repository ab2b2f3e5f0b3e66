"""Documents onto a topic: all at once, or at a steady rate from a process of its own.

The steady feed has near-copies in it, so that there are pairs to wait for: every so many documents an earlier one comes
again under another id with some of its words replaced. Everything is determined by the posts and the position.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer

from bench import report
from bench.corpora import corpus, unpack
from bench.edits import make
from bench.feeds import make as make_feed
from stream_lsh.kafka.client.connection import client_options
from stream_lsh.kafka.settings import KafkaSettings

ENOUGH_WORDS = 100  # a post of so many words stays above a Jaccard of 0.8 when one in a hundred is replaced
NEAREST, FARTHEST = 200, 5000  # how many documents back the original of a near-copy is
LONGEST = 4000  # characters of a post in the steady feed
EXAMPLE = "python -m bench.kafka_feed --bootstrap 127.0.0.1:9092 --topic documents --rate 100 --seconds 10 --sent sent"


@dataclass(frozen=True)
class Post:
    """A document to send: its id, and its JSON."""

    id: str
    value: bytes


def source(data: Path, work: Path, number: int) -> Path:
    """A file with so many posts or more; beyond 120,000 edited ones, see bench/edits.py."""
    file = unpack(corpus("posts-120k"), data, work)
    if number <= 120_000:
        return file
    target = work / f"edited-{number}.jsonl"
    make(file, target, number)
    return target


def posts(data: Path, work: Path, number: int) -> list[Post]:
    """The first so many posts."""
    with source(data, work, number).open("rb") as lines:
        return [Post(orjson.loads(line)["id"], line.rstrip(b"\n")) for line in islice(lines, number)]


def feed(name: str, data: Path, work: Path, number: int) -> list[Post]:
    """The first so many documents: posts, or a feed of `bench.feeds`."""
    if name == "posts":
        return posts(data, work, number)
    file, _ = make_feed(name, unpack(corpus("posts-120k"), data, work), number, work)
    with file.open("rb") as lines:
        return [Post(orjson.loads(line)["id"], line.rstrip(b"\n")) for line in lines]


def with_copies(lines: Iterable[bytes], every: int, seed: int = 4) -> Iterator[tuple[Post, str | None]]:
    """Posts, each with None, and as every `every`-th document a near-copy of an earlier one, with the id of that one.

    Posts that are too long to be a forum's everyday are left out.
    """
    chance = random.Random(seed)
    places: list[int] = []  # of the posts that may be copied, which are `sources`
    sources: list[dict[str, Any]] = []
    place = 0
    for line in lines:
        document = orjson.loads(line)
        if len(document["text"]) > LONGEST:
            continue
        if place % every == every - 1:
            first, last = bisect_left(places, place - FARTHEST), bisect_right(places, place - NEAREST)
            if last > first:
                source = sources[chance.randrange(first, last)]
                copy = {**source, "id": f"copy-{place}", "text": edited(source["text"], place, chance)}
                yield Post(copy["id"], orjson.dumps(copy)), source["id"]
                place += 1
        if len(document["text"].split()) >= ENOUGH_WORDS:
            places.append(place)
            sources.append(document)
        yield Post(document["id"], line.rstrip(b"\n")), None
        place += 1


def edited(text: str, number: int, chance: random.Random) -> str:
    """A text with one word in a hundred replaced, at places that `chance` chooses."""
    words = text.split(" ")
    for i in chance.sample(range(len(words)), max(1, len(words) // ENOUGH_WORDS)):
        words[i] = f"edit{number}"
    return " ".join(words)


async def fill(settings: KafkaSettings, topic: str, partitions: int, documents: Sequence[Post]) -> float:
    """Put documents onto the partitions of a topic in turn, as fast as possible; the documents a second.

    The key is the id; the order within a partition is that of the documents.
    """
    producer = AIOKafkaProducer(
        **client_options(settings), acks="all", max_batch_size=1 << 19, request_timeout_ms=60_000
    )
    await producer.start()
    began = time.perf_counter()
    try:
        for partition in range(partitions):
            futures: list[asyncio.Future[Any]] = []
            batch = producer.create_batch()
            for document in documents[partition::partitions]:
                key = document.id.encode()
                if batch.append(key=key, value=document.value, timestamp=None) is None:
                    futures.append(await producer.send_batch(batch, topic, partition=partition))
                    batch = producer.create_batch()
                    batch.append(key=key, value=document.value, timestamp=None)
            if batch.record_count():
                futures.append(await producer.send_batch(batch, topic, partition=partition))
            await asyncio.gather(*futures)
    finally:
        await producer.stop()
    return len(documents) / (time.perf_counter() - began)


async def steady(
    settings: KafkaSettings, topic: str, partitions: int, documents: Sequence[Post], rate: float
) -> list[float]:
    """Send documents at a rate, one by one, to the partitions in turn; when each was sent, seconds since 1970."""
    producer = AIOKafkaProducer(**client_options(settings), acks="all", linger_ms=0, request_timeout_ms=60_000)
    await producer.start()
    sent: list[float] = []
    futures = []
    try:
        begin = time.perf_counter()
        for i, document in enumerate(documents):
            pause = begin + i / rate - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            sent.append(time.time())
            futures.append(
                await producer.send(topic, document.value, key=document.id.encode(), partition=i % partitions)
            )
        await asyncio.gather(*futures)
    finally:
        await producer.stop()
    return sent


def start(bootstrap: str, topic: str, partitions: int, rate: float, seconds: float, sent: Path, given: Any) -> Any:
    """The steady feed as a process of its own; its times are in the file `sent` when it has ended well."""
    return subprocess.Popen(
        [
            sys.executable, "-m", "bench.kafka_feed", "--bootstrap", bootstrap, "--topic", topic, "--partitions",
            str(partitions), "--rate", str(rate), "--seconds", str(seconds), "--sent", str(sent), "--every",
            str(given.every), "--data", str(given.data), "--work", str(given.work),
        ],
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def read_sent(path: Path) -> dict[str, float]:
    """id -> seconds since 1970, as the feed has written them."""
    pairs = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return {name: float(at) for name, at in pairs}


def main() -> None:
    parser = report.parser("kafka_feed", "Send documents with near-copies in them at a steady rate.", EXAMPLE)
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--topic", required=True, help="documents topic")
    parser.add_argument("--partitions", type=int, default=1, help="partitions to send to in turn (%(default)s)")
    parser.add_argument("--rate", type=float, default=1000, help="documents a second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="how long (%(default)s)")
    parser.add_argument("--every", type=int, default=10, help="one in so many is a near-copy (%(default)s)")
    parser.add_argument("--sent", type=Path, required=True, help="file for the ids and when each was sent")
    given = parser.parse_args()
    number = round(given.rate * given.seconds)
    source = posts(given.data, given.work, number)
    made = [post for post, _ in islice(with_copies([post.value for post in source], given.every), number)]
    settings = KafkaSettings(bootstrap_servers=given.bootstrap)
    times = asyncio.run(steady(settings, given.topic, given.partitions, made, given.rate))
    unfinished = given.sent.with_suffix(".part")
    lines_out = (f"{post.id}\t{at:.6f}\n" for post, at in zip(made, times, strict=True))
    unfinished.write_text("".join(lines_out), encoding="utf-8")
    unfinished.replace(given.sent)


if __name__ == "__main__":
    main()
