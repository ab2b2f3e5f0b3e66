"""Each stage on its own over a prepared log: documents a second, processor time a document, in Kafka and in the stage.

One prefix goes through the stages one after the other: sign reads the documents, and only when it has made all frames
sequence is started, then match, judge, forward; each is `stream-lsh kafka worker --roles STAGE` in one process.
Measured is the middle of each run, from 10 % to 90 % of the documents, so that start and end of the process are left
out. What the topic `signatures` can carry, being a single partition, is measured with the frames that sign has made.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.structs import ConsumerRecord

from bench import report
from bench.kafka_feed import Post, fill, posts
from bench.kafka_figures import done_by, micros, span
from bench.kafka_processes import cpu_between, most_resident, others_between
from bench.kafka_rig import PACKAGES, Progress, Rig, Run, add_options, read_all, rig
from stream_lsh.kafka.client.connection import client_options
from stream_lsh.kafka.consumer.position import committed_at
from stream_lsh.kafka.names import largest_record
from stream_lsh.wire.frames import Places
from stream_lsh.wire.replies import head
from stream_lsh.wire.sequenced import Sequenced, split_frames

EXAMPLE = "python -m bench.kafka_stages --documents 20000 --frame-documents 1000 16 --out results"
STAGES = ("sign", "sequence", "match", "judge", "forward")
KEY_SECONDS = 0.2  # between two looks for the key of the index
AHEAD = 2**20  # documents that sequence may be ahead of the judge, who is not there
COLUMNS = {
    "stage": "stage", "frame_documents": "frame", "rate": "documents/s", "micros": "CPU µs/document",
    "per_core": "documents/s a core", "broker_micros": "Kafka's CPU µs/document", "resident_mb": "MB",
    "bytes": "bytes out/document", "others": "other load",
}  # fmt: skip

Weights = dict[TopicPartition, list[tuple[int, float]]]


def weights(records: Sequence[ConsumerRecord], of: Callable[[ConsumerRecord], float]) -> Weights:
    """The documents that each record stands for, by partition, in order."""
    found: Weights = {}
    for record in sorted(records, key=lambda record: record.offset):
        found.setdefault(TopicPartition(record.topic, record.partition), []).append((record.offset, of(record)))
    return found


def total(found: Weights) -> float:
    """All documents of all records."""
    return sum(weight for records in found.values() for _, weight in records)


class Stages:
    """The stages of one run, one after the other."""

    def __init__(self, rig: Rig, run: Run, documents: int) -> None:
        self._rig, self._run, self._documents = rig, run, documents
        self._sizes: dict[int, int] = {}  # documents of the frame at an offset of signatures
        self._verdicts: list[ConsumerRecord] = []

    def _weighed(self, stage: str) -> tuple[str, Callable[[ConsumerRecord], float]]:
        """The topic by which a stage is measured, and the documents that a record of it stands for."""
        settings, topics = self._run.settings, self._run.topics
        match stage:
            case "sign":
                return topics.signatures, lambda record: float(len(Places.of(record.value, settings).offsets))
            case "sequence":

                def sequenced(record: ConsumerRecord) -> float:
                    found = [Sequenced.decode(frame, settings) for frame in split_frames(record.value, settings)]
                    return sum(len(Places.of(one.frame, settings).offsets) for one in found) / settings.shards

                return topics.frames, sequenced
            case "match":
                return topics.matches, lambda record: self._sizes[head(record.value, settings)[1]] / settings.shards
            case "judge":
                return topics.verdicts, lambda _: 1.0
            case _:
                unique = sum(b'"kind":"unique"' in record.value for record in self._verdicts)
                return topics.unique, lambda _: self._documents / unique

    async def begin(self) -> None:
        """Let a sequencer create the key of the index, which the signer waits for."""
        run, group = self._run, self._run.topics.group("sequence")
        worker = run.worker(roles=["sequence"], processes="one", name="begin", decision_lag=AHEAD)
        while await committed_at(run.settings, group, TopicPartition(run.topics.signatures, 0)) is None:
            worker.check()
            await asyncio.sleep(KEY_SECONDS)
        run.end(worker)

    async def measure(self, stage: str) -> dict[str, Any]:
        """Run one stage to the end of its input; its row."""
        run, n = self._run, self._documents
        topic, weight = self._weighed(stage)
        worker = run.worker(roles=[stage], processes="one", name=stage, decision_lag=AHEAD)
        processes = self._rig.watch(worker)
        async with Progress(run, [topic], processes, every=0.02) as progress:
            records = await progress.records(topic, lambda found: total(weights(found, weight)) > n - 0.5, 1)
        if stage == "sign":
            self._sizes = {record.offset: int(weight(record)) for record in records}
        if stage == "judge":
            self._verdicts = records
        begin, end, inside = span(*done_by(progress.ends, weights(records, weight)))
        cpu = micros(cpu_between(processes.looks, begin, end), inside)
        stopped = run.end(worker)
        own = cpu.get("worker", 0.0)
        return {
            "kind": "stage", "stage": stage, "frame_documents": run.settings.frame_documents,
            "shards": run.settings.shards, "verify": run.settings.verify, "documents": n,
            "rate": inside / (end - begin), "micros": own, "per_core": 1e6 / own if own else None,
            "broker_micros": cpu.get("broker"), "records": len(records),
            "others": others_between(processes.looks, begin, end),
            "bytes": sum(len(record.value) + len(record.key or b"") for record in records) / n,
            "resident_mb": most_resident(processes.looks, begin, end).get("worker", 0) / 1e6, "stop_seconds": stopped,
        }  # fmt: skip


async def capacity(rig: Rig, run: Run) -> dict[str, Any]:
    """What one partition takes: the frames that were signed, produced again into another topic, acks=all; and read."""
    values = [record.value for record in await read_all(run.settings, run.topics.signatures)]
    documents = sum(len(Places.of(value, run.settings).offsets) for value in values)
    name = f"{run.topics.prefix}.capacity"
    largest = largest_record(run.settings)
    await rig.topic(run.settings, name, 1, **{"max.message.bytes": str(largest)})
    producer = AIOKafkaProducer(
        **client_options(run.settings), acks="all", enable_idempotence=True, max_request_size=largest, linger_ms=0,
        max_batch_size=1 << 20,
    )  # fmt: skip
    processes = rig.watch()
    await producer.start()
    try:
        processes.look()
        began = time.perf_counter()
        futures = [await producer.send(name, value, partition=0) for value in values]
        await asyncio.gather(*futures)
        written = time.perf_counter() - began
        processes.look()
    finally:
        await producer.stop()
    began = time.perf_counter()
    await read_all(run.settings, name)
    read = time.perf_counter() - began
    broker = cpu_between(processes.looks, processes.looks[0].at, processes.looks[-1].at).get("broker")
    return {
        "kind": "capacity", "stage": "one partition of frames", "frame_documents": run.settings.frame_documents,
        "rate": documents / written, "broker_micros": None if broker is None else 1e6 * broker / documents,
        "bytes": sum(map(len, values)) / documents, "read_rate": documents / read, "frames": len(values),
        "megabytes_a_second": sum(map(len, values)) / written / 1e6,
    }  # fmt: skip


async def measure(
    rig: Rig, documents: Sequence[Post], frame: int, shards: int, partitions: int, stages: Sequence[str]
) -> list[dict[str, Any]]:
    """All stages with frames of a size."""
    rows = []
    async with rig.run("stages", shards=shards, partitions=partitions, frame_documents=frame) as run:
        await fill(run.settings, run.topics.documents, partitions, documents)
        found = Stages(rig, run, len(documents))
        await found.begin()
        for stage in STAGES:
            made = await found.measure(stage)
            print(f"  {stage}: {made['rate']:,.0f} documents/s, {made['micros']:.1f} µs", flush=True)
            rows.append(made)
            if stage == stages[-1]:
                break
        rows.append(await capacity(rig, run))
    return rows


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """What stages that run only once can carry, and the processor time of a document in all stages."""
    lines = []
    for frame in dict.fromkeys(row["frame_documents"] for row in rows):
        mine = {row["stage"]: row for row in rows if row["frame_documents"] == frame}
        own = sum(row["micros"] for row in mine.values() if row["kind"] == "stage")
        kafka = sum(row["broker_micros"] or 0 for row in mine.values() if row["kind"] == "stage")
        single = ", ".join(
            f"{name} {mine[name]['rate']:,.0f}"
            for name in ("sequence", "judge", "one partition of frames")
            if name in mine
        )
        lines.append(
            f"- frames of {frame}: all stages {own:.1f} µs of CPU a document, Kafka {kafka:.1f}; documents/s that what "
            f"is there once can carry: {single}"
        )
    return "\n".join(lines)


async def run(given: argparse.Namespace) -> None:
    where = report.environment(PACKAGES)
    documents = posts(given.data, given.work, given.documents)
    rows: list[dict[str, Any]] = []
    with rig(given) as here:
        for frame in given.frame_documents:
            print(f"frames of {frame}", flush=True)
            rows += await measure(here, documents, frame, given.shards, given.partitions, given.stages)
    shards = f"{given.shards} shard{'s' if given.shards > 1 else ''}"
    title = f"{len(documents):,} posts in {given.partitions} partitions, {shards}"
    print(f"\n{title}\n{report.table(COLUMNS, rows)}\n{summary(rows)}")
    text = f"{title}\n\n{report.table(COLUMNS, rows, markdown=True)}\n\n{summary(rows)}"
    report.write(given.out, "kafka_stages", where, rows, text)


def main() -> None:
    parser = report.parser("kafka_stages", __doc__.splitlines()[0], EXAMPLE)
    add_options(parser)
    parser.add_argument("--documents", type=int, default=120_000, help="how many posts (%(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="of the documents topic (%(default)s)")
    parser.add_argument("--shards", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--frame-documents", type=int, nargs="+", default=[1000, 16], help="frame sizes (1000 16)")
    parser.add_argument(
        "--up-to", dest="stages", type=lambda text: STAGES[: STAGES.index(text) + 1], default=STAGES, metavar="STAGE",
        help="the last stage to measure (forward)",
    )  # fmt: skip
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
