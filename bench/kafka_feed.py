"""Documents onto a topic: all at once, or at a steady rate from a process of its own.

The steady feed has near-copies in it, so that there are pairs to wait for: every so many documents an earlier one comes
again under another id with some of its words replaced. Everything is determined by the posts and the position.
"""

from __future__ import annotations

import argparse
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
from typing import TYPE_CHECKING, Any

import orjson
from aiokafka import AIOKafkaProducer

from bench import report
from bench.corpora import corpus, unpack
from bench.edits import make
from bench.feeds import make as make_feed
from stream_lsh.kafka.client.connection import client_options
from stream_lsh.kafka.settings import KafkaSettings

if TYPE_CHECKING:
    from bench.kafka_processes import Processes
    from bench.kafka_rig import Run

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


async def fed(
    run: Run, partitions: int, seconds: float, given: argparse.Namespace, processes: Processes,
    *tasks: asyncio.Task[None],
) -> dict[str, float]:  # fmt: skip
    """Send the steady feed from a process of its own, to so many partitions in turn.

    Args:
        seconds: how long.
        given: of `add_feed_options`.
        processes: looked at meanwhile.
        tasks: when one of them ends with an error, so does this.

    Returns:
        When each document was sent, in seconds since 1970, by its id.
    """
    sent = run.folder / "sent"
    command = [sys.executable, "-m", "bench.kafka_feed", "--bootstrap", run.rig.bootstrap]
    command += ["--topic", run.topics.documents, "--partitions", str(partitions), "--rate", str(given.rate)]
    command += ["--seconds", str(seconds), "--sent", str(sent), "--every", str(given.every)]
    command += ["--data", str(given.data), "--work", str(given.work)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as feed:
        try:
            while feed.poll() is None:
                run.check()
                for task in tasks:
                    if task.done():
                        task.result()
                processes.look()
                await asyncio.sleep(0.5)
        finally:
            feed.kill()
    if feed.returncode:
        raise SystemExit(f"the feed ended with code {feed.returncode}; what it said stands above")
    pairs = (line.split("\t") for line in sent.read_text(encoding="utf-8").splitlines())
    return {name: float(at) for name, at in pairs}


def add_feed_options(parser: argparse.ArgumentParser, seconds: float, warm_up: float, java: float) -> None:
    """The options of a measurement with the steady feed, with defaults in seconds."""
    parser.add_argument("--rate", type=float, default=1000, help="documents a second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=seconds, help="how long to measure (%(default)s)")
    parser.add_argument(
        "--warm-up", type=float, default=warm_up, help="seconds of the feed that do not count (%(default)s)"
    )
    parser.add_argument(
        "--java", type=float, default=java, help="the same in the first run, in which Kafka is compiling (%(default)s)"
    )
    parser.add_argument("--every", type=int, default=10, help="one in so many is a near-copy (%(default)s)")


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
