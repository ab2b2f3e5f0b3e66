"""How long a match worker takes until it answers: with its disk lost, with its disk, and with a standby beside it.

The frames of many documents are matched first, with changelog records of some sizes; signing and sequencing go on with
a document now and then, so that there is always something to answer. Then the match worker is stopped, and started
again with an empty folder (it rebuilds its shards from the changelog), and with what it had. At last it is killed while
another one keeps standby copies of its shards. The clock stops at the first reply to a new frame, for all shards.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from bench import report
from bench.kafka_feed import Post, fill, posts
from bench.kafka_processes import cpu_between, most_resident, others_between
from bench.kafka_rig import PACKAGES, PATIENCE, Progress, Rig, Run, Worker, add_options, reader, rig
from bench.kafka_stages import AHEAD
from stream_lsh.kafka.client.connection import client_options
from stream_lsh.kafka.tools.broker import free_port
from stream_lsh.wire.frames import Places
from stream_lsh.wire.replies import head

EXAMPLE = "python -m bench.kafka_recovery --documents 20000 --frame-documents 16 --out results"
EVERY = 0.02  # seconds between two documents of the trickle, so that answers are seen that soon
SETTLED = 1.0  # seconds after which the last replies of a worker that was stopped have been seen
LOOK = 0.05  # seconds between two looks at a worker's metrics
COLUMNS = {
    "name": "what happened", "frame_documents": "documents a record", "seconds": "s to the first answer",
    "reading": "s of reading", "rate": "documents/s", "per_core": "documents/s a core",
    "all_per_core": "a core, with opening",
    "peak_mb": "MB", "others": "other load",
}  # fmt: skip
REMAINING = re.compile(r'^stream_lsh_recovery_remaining_records\{.*shard="(\d+)".*\} ([\d.e+]+)$', re.MULTILINE)


@dataclass
class Replies:
    """The replies to frames as they come. seen: by shard, (seconds since 1970, offset of the frame in signatures)."""

    seen: dict[int, list[tuple[float, int]]] = field(default_factory=dict)

    def newest(self) -> int:
        """The newest frame that any shard has answered."""
        return max((frame for replies in self.seen.values() for _, frame in replies), default=-1)

    def first_after(self, shard: int, frame: int) -> float | None:
        """When a shard first answered a frame that came after another one; None if it has not."""
        return next((at for at, answered in self.seen.get(shard, []) if answered > frame), None)

    def longest_gap(self, shard: int, start: float) -> tuple[float, float]:
        """The longest time from `start` on in which a shard said nothing: when it began and ended."""
        times = [at for at, _ in self.seen.get(shard, []) if at >= start]
        gaps = zip([start, *times], times, strict=False)
        return max(gaps, key=lambda gap: gap[1] - gap[0], default=(start, start))


def remaining(metrics: str) -> dict[int, float]:
    """Changelog records that shards have yet to read, from the text of /metrics."""
    return {int(shard): float(value) for shard, value in REMAINING.findall(metrics)}


def reading_time(looks: Sequence[tuple[float, float]]) -> tuple[float, float, float] | None:
    """From (seconds, records left) of each look: when reading began and ended, and the records read in between."""
    left = [(at, records) for at, records in looks if records > 0]
    after = [at for at, records in looks if records == 0 and left and at > left[-1][0]]
    if not left:
        return None
    most = max(records for _, records in left)
    begin = next(at for at, records in left if records == most)
    return (begin, after[0], most) if after else None


class Trickle:
    """Documents now and then, for as long as it runs, with all replies to their frames."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.replies = Replies()

    async def feed(self) -> None:
        """Send a short document every so often."""
        producer = AIOKafkaProducer(**client_options(self._run.settings), acks="all", linger_ms=0)
        await producer.start()
        try:
            for number in range(1_000_000):
                value = b'{"id":"now-%d","title":"","text":"document %d of the trickle"}' % (number, number)
                await producer.send(self._run.topics.documents, value, key=b"now-%d" % number, partition=0)
                await asyncio.sleep(EVERY)
        finally:
            await producer.stop()

    async def listen(self, consumer: AIOKafkaConsumer) -> None:
        """Note who has answered what, and when."""
        while True:
            batches = await consumer.getmany(timeout_ms=1000)
            now = time.time()
            for records in batches.values():
                for record in records:
                    shard, offset, _ = head(record.value, self._run.settings)
                    self.replies.seen.setdefault(shard, []).append((now, offset))


@asynccontextmanager
async def trickling(run: Run) -> Any:
    """Feed and listen while the block runs."""
    trickle = Trickle(run)
    consumer = await reader(run.settings, [run.topics.matches])
    await consumer.seek_to_end(*consumer.assignment())
    tasks = [asyncio.create_task(trickle.feed()), asyncio.create_task(trickle.listen(consumer))]
    try:
        yield trickle
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await consumer.stop()


async def answered(run: Run, trickle: Trickle, frame: int) -> float:
    """When all shards had answered a frame after another one."""
    began = time.time()
    while True:
        run.check()
        found = [trickle.replies.first_after(shard, frame) for shard in range(run.settings.shards)]
        times = [at for at in found if at is not None]
        if len(times) == len(found):
            return max(times)
        if time.time() - began > PATIENCE + 60:
            raise SystemExit(f"no answer of all shards:\n{run.workers[-1].tail()}")
        await asyncio.sleep(LOOK)


async def started(
    rig: Rig, run: Run, trickle: Trickle, name: str, documents: int, *, empty: bool = False
) -> tuple[dict[str, Any], Worker]:
    """Start the match worker and wait for its first answers; a row of what that took.

    empty: it has no disk, so that it reads all documents from the changelog.
    """
    await asyncio.sleep(SETTLED)
    frame = trickle.replies.newest()
    port = free_port()
    start = time.time()
    worker = run.worker(roles=["match"], processes="one", name="match", http_port=port)
    processes = rig.watch(worker)
    looks: list[tuple[float, float]] = []

    async def look() -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                processes.look()
                try:
                    async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                        looks.append((time.time(), sum(remaining(await response.text()).values())))
                except aiohttp.ClientError:
                    pass  # it is not up yet
                await asyncio.sleep(LOOK)

    looking = asyncio.create_task(look())
    try:
        end = await answered(run, trickle, frame)
        processes.look()
    finally:
        looking.cancel()
        await asyncio.wait([looking])
    row = {
        "kind": "recovery", "name": name, "frame_documents": run.settings.frame_documents, "documents": documents,
        "shards": run.settings.shards, "verify": run.settings.verify, "seconds": end - start,
        "others": others_between(processes.looks, start, end),
        "cpu_seconds": cpu_between(processes.looks, start, end).get("worker", 0.0),
        "peak_mb": most_resident(processes.looks, start, end).get("worker", 0) / 1e6,
    }  # fmt: skip
    reading = reading_time(looks)
    if reading is not None and empty:
        begin, done, _ = reading
        cpu = cpu_between(processes.looks, begin, done).get("worker", 0.0)
        row |= {
            "reading": done - begin, "rate": documents / (done - begin),
            "per_core": documents / cpu if cpu else None,
        }  # fmt: skip
    return row, worker


async def rebuilding(rig: Rig, documents: Sequence[Post], frame: int, shards: int) -> list[dict[str, Any]]:
    """Stopped and killed, each with its disk and with the disk lost; the processor time that the latter adds."""
    rows = []
    async with rig.run("recovery", shards=shards, partitions=1, frame_documents=frame) as run:
        await prepare(run, documents)
        async with trickling(run) as trickle:
            first, worker = await started(rig, run, trickle, "first start", len(documents))
            print(f"  up after {first['seconds']:.1f} s", flush=True)
            for name, lose in (
                ("stopped, disk lost", True), ("stopped", False), ("killed", False), ("killed, disk lost", True),
            ):  # fmt: skip
                if name.startswith("killed"):
                    worker.kill()
                    run.workers.remove(worker)
                else:
                    run.end(worker)
                if lose:
                    shutil.rmtree(run.folder / "data-match")
                row, worker = await started(rig, run, trickle, name, len(documents), empty=lose)
                print(f"  {name}: {row['seconds']:.1f} s", flush=True)
                rows.append(row)
    for lost, kept in ((rows[0], rows[1]), (rows[3], rows[2])):
        if (more := lost["cpu_seconds"] - kept["cpu_seconds"]) > 0:
            lost["all_per_core"] = len(documents) / more
    return rows


async def prepare(run: Run, documents: Sequence[Post]) -> None:
    """Have the documents signed, sequenced and matched; signing and sequencing go on, matching ends."""
    await fill(run.settings, run.topics.documents, 1, documents)
    run.worker(roles=["sign", "sequence"], processes="one", name="front", decision_lag=AHEAD)
    matcher = run.worker(roles=["match"], processes="one", name="match")
    settings, topics = run.settings, run.topics

    def sizes(found: Sequence[Any]) -> list[int]:
        """Documents of each frame that has any; the sequencer passes no others on."""
        return [n for record in found if (n := len(Places.of(record.value, settings).offsets))]

    async with Progress(run, [topics.signatures, topics.matches]) as progress:
        frames = await progress.records(topics.signatures, lambda found: sum(sizes(found)) >= len(documents), 1)
        expected = len(sizes(frames)) * settings.shards
        await progress.records(topics.matches, lambda found: len(found) >= expected, expected)
    run.end(matcher)


async def standby(rig: Rig, documents: Sequence[Post], frame: int, given: argparse.Namespace) -> dict[str, Any]:
    """Two workers, each the other's standby; one is killed, and its shards have to answer again."""
    shards = max(2, given.shards)
    timeout = {"session_timeout_ms": given.session_timeout_ms} if given.session_timeout_ms else {}
    async with rig.run("standby", shards=shards, partitions=1, frame_documents=frame, standbys=1, **timeout) as run:
        await prepare(run, documents)
        async with trickling(run) as trickle:
            row, doomed = await started(rig, run, trickle, "alone", len(documents))
            run.worker(roles=["match"], processes="one", name="other")
            await asyncio.sleep(given.settle)
            run.check()
            await answered(run, trickle, trickle.replies.newest())
            run.workers.remove(doomed)
            frame_before, killed = trickle.replies.newest(), time.time()
            doomed.kill()
            await answered(run, trickle, frame_before)
            # The survivor's shards answer on; what was killed shows as the longest silence after the kill.
            await asyncio.sleep(given.session_timeout_ms / 1000 + 10 if given.session_timeout_ms else 25)
            gaps = [trickle.replies.longest_gap(shard, killed) for shard in range(shards)]
            silent = max(gaps, key=lambda gap: gap[1] - gap[0])
    return {
        "kind": "standby", "name": "killed beside a standby", "frame_documents": frame, "documents": len(documents),
        "shards": shards, "seconds": silent[1] - killed, "session_timeout_ms": run.settings.session_timeout_ms,
        "silent_by_shard": [end - begin for begin, end in gaps], "first_start_seconds": row["seconds"],
    }  # fmt: skip


async def run(given: argparse.Namespace) -> None:
    where = report.environment(PACKAGES)
    documents = posts(given.data, given.work, given.documents)
    rows: list[dict[str, Any]] = []
    with rig(given) as here:
        for frame in given.frame_documents:
            print(f"records of {frame} documents", flush=True)
            rows += await rebuilding(here, documents, frame, given.shards)
        if not given.no_standby:
            rows.append(await standby(here, documents, max(given.frame_documents), given))
            print(f"killed beside a standby: {rows[-1]['seconds']:.1f} s", flush=True)
    title = f"{len(documents):,} posts, {given.shards} shard{'s' if given.shards > 1 else ''}"
    print(f"\n{title}\n{report.table(COLUMNS, rows)}")
    report.write(given.out, "kafka_recovery", where, rows, f"{title}\n\n{report.table(COLUMNS, rows, markdown=True)}")


def main() -> None:
    parser = report.parser("kafka_recovery", __doc__.splitlines()[0], EXAMPLE)
    add_options(parser)
    parser.add_argument("--documents", type=int, default=120_000, help="how many posts (%(default)s)")
    parser.add_argument("--frame-documents", type=int, nargs="+", default=[16, 128, 1000], help="(16 128 1000)")
    parser.add_argument("--shards", type=int, default=1, help="2 at least for the standby (%(default)s)")
    parser.add_argument("--session-timeout-ms", type=int, help="of the workers (default: theirs)")
    parser.add_argument("--settle", type=float, default=20, help="seconds for a standby to catch up (%(default)s)")
    parser.add_argument("--no-standby", action="store_true", help="leave out the last part")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
