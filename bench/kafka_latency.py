"""From producing a document to its pair: at a steady rate, with one and many partitions.

A process of its own sends documents one by one, at even distances. One in ten is a near-copy of a document that was
sent some seconds before. The clock runs from just before the producer's `send` until a consumer that sees only what is
committed has the pair of the near-copy. Workers run as a user starts them; Kafka runs on the same machine. The first
row is the same feed while nobody works on it.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer

from bench import report
from bench.kafka_feed import add_feed_options, fed
from bench.kafka_figures import in_words, quantiles
from bench.kafka_processes import Processes, cpu_between, most_resident, others_between
from bench.kafka_rig import MYSELF, PACKAGES, PATIENCE, Rig, Run, add_options, reader, rig
from bench.kafka_stages import STAGES as ROLES
from stream_lsh.kafka.client.connection import client_options

EXAMPLE = "python -m bench.kafka_latency --seconds 20 --warm-up 5 --java 20 --partitions 1 --out results"
SETTLE = 3.0  # seconds that pairs may still come after the last document
COLUMNS = {
    "name": "partitions", "p50": "p50 ms", "p90": "p90 ms", "p99": "p99 ms", "slowest": "slowest ms",
    "signed_p50": "until signed p50", "pairs": "pairs", "missing": "missing", "reached": "documents/s",
    "cores": "cores", "others": "other load",
}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A pair as it came. seen: seconds since 1970; signed: `detected_at`, in ms."""

    older: str
    newer: str
    seen: float
    signed: int


def delays(pairs: Sequence[Pair], sent: Mapping[str, float], start: float, end: float) -> dict[str, dict[str, float]]:
    """Milliseconds from sending to seeing, and to signing, by the id of the document that made a pair complete.

    Only documents sent between `start` and `end` count, and of each only its first pair.
    """
    found: dict[str, float] = {}
    signed: dict[str, float] = {}
    for pair in pairs:
        if pair.older not in sent or pair.newer not in sent:
            continue
        # Two that were sent at almost the same time may have changed places.
        last = max(pair.older, pair.newer, key=sent.__getitem__)
        if start <= sent[last] < end and last not in found:
            found[last] = 1000 * (pair.seen - sent[last])
            signed[last] = pair.signed - 1000 * sent[last]
    return {"seen": found, "signed": signed}


async def collect(run: Run, pairs: list[Pair]) -> None:
    """Read the pairs topic for ever."""
    consumer = await reader(run.settings, [run.topics.pairs])
    try:
        while True:
            batches = await consumer.getmany(timeout_ms=1000)
            now = time.time()
            for records in batches.values():
                for record in records:
                    value = orjson.loads(record.value)
                    pairs.append(Pair(value["older"], value["newer"], now, value["detected_at"]))
    finally:
        await consumer.stop()


async def measure(rig: Rig, partitions: int, given: argparse.Namespace, warm_up: float) -> dict[str, Any]:
    """Feed workers of such settings for a while; a row of how late the pairs were."""
    settings = {"verify": "signature", "partitions": partitions, "shards": given.shards}
    async with rig.run("latency", **settings) as run:
        worker = run.worker(roles=given.roles.split(","), processes=given.processes)
        processes = rig.watch(worker)
        pairs: list[Pair] = []
        reading = asyncio.create_task(collect(run, pairs))
        try:
            await until_up(run, pairs)
            sent = await fed(run, partitions, warm_up + given.seconds, given, processes, reading)
            await quiet(run, pairs, given.rate)
        finally:
            reading.cancel()
            await asyncio.wait([reading])
        return row(partitions, pairs, sent, processes, given, warm_up)


async def alone(rig: Rig, given: argparse.Namespace) -> dict[str, Any]:
    """The same feed while nobody works on it: what the broker takes for that alone."""
    async with rig.run("feed", verify="signature", partitions=1) as run:
        processes = rig.watch()
        warm_up = max(given.warm_up, given.java)
        length = warm_up + given.seconds
        sent = await fed(run, 1, length, given, processes)
    first = min(sent.values()) + warm_up
    end = first + given.seconds
    cpu = {name: used for name, used in cpu_between(processes.looks, first, end).items() if name != MYSELF}
    return {
        "kind": "latency", "name": "the feed alone", "reached": round(len(sent) / length),
        "others": others_between(processes.looks, first, end), "cores": sum(cpu.values()) / given.seconds,
    }  # fmt: skip


async def until_up(run: Run, pairs: list[Pair]) -> None:
    """Send documents that are copies of each other until the first pair comes."""
    producer = AIOKafkaProducer(**client_options(run.settings), acks="all")
    await producer.start()
    try:
        began = time.time()
        while not pairs:
            run.check()
            if time.time() - began > PATIENCE:
                raise SystemExit(f"the worker has found no pair:\n{run.workers[0].tail()}")
            name = f"up-{time.time_ns()}"
            value = orjson.dumps({"id": name, "title": "up", "text": "is it up yet? " * 20})
            await producer.send_and_wait(run.topics.documents, value, key=name.encode())
            await asyncio.sleep(0.2)
    finally:
        await producer.stop()


async def quiet(run: Run, pairs: list[Pair], rate: float) -> None:
    """Wait until no pair has come for a while."""
    began = time.time()
    while not pairs or time.time() - pairs[-1].seen < SETTLE:
        run.check()
        if time.time() - began > PATIENCE:
            what = "is still behind" if pairs else "has found no pair"
            raise SystemExit(f"at {rate:g} documents/s the worker {what}:\n{run.workers[0].tail()}")
        await asyncio.sleep(0.2)


def row(
    partitions: int, pairs: Sequence[Pair], sent: Mapping[str, float], processes: Processes,
    given: argparse.Namespace, warm_up: float,
) -> dict[str, Any]:  # fmt: skip
    """The figures of a run."""
    first = min(sent.values()) + warm_up
    end = first + given.seconds
    found = delays(pairs, sent, first, end)
    copies = [name for name, at in sent.items() if name.startswith("copy-") and first <= at < end]
    signed = quantiles(list(found["signed"].values()))
    cpu = {name: used for name, used in cpu_between(processes.looks, first, end).items() if name != MYSELF}
    inside = sum(first <= at < end for at in sent.values())
    return {
        "kind": "latency", "name": str(partitions), "partitions": partitions,
        "processes": given.processes, "shards": given.shards, "rate": given.rate,
        "reached": round(inside / given.seconds),
        **quantiles(list(found["seen"].values())),
        **{f"signed_{name}": value for name, value in signed.items()},
        "pairs": len(found["seen"]), "missing": sum(name not in found["seen"] for name in copies),
        "others": others_between(processes.looks, first, end), "cores": sum(cpu.values()) / given.seconds,
        "cores_by_process": {name: value / given.seconds for name, value in cpu.items()},
        "resident_mb": {name: size / 1e6 for name, size in most_resident(processes.looks, first, end).items()},
    }  # fmt: skip


async def run(given: argparse.Namespace) -> None:
    where = report.environment(PACKAGES)
    rows: list[dict[str, Any]] = []
    with rig(given) as here:
        rows.append(await alone(here, given))
        print(report.table(COLUMNS, rows), flush=True)
        for partitions in given.partitions:
            warm_up = given.warm_up if len(rows) > 1 else max(given.warm_up, given.java)
            rows.append(await measure(here, partitions, given, warm_up))
            print(report.table(COLUMNS, rows[-1:]), flush=True)
            print(f"  cores: {in_words(rows[-1]['cores_by_process'])}", flush=True)
    title = f"{given.rate:g} documents/s for {given.seconds:g} s, verify = signature, processes: {given.processes}"
    print(f"\n{title}\n{report.table(COLUMNS, rows)}")
    report.write(given.out, "kafka_latency", where, rows, f"{title}\n\n{report.table(COLUMNS, rows, markdown=True)}")


def main() -> None:
    parser = report.parser("kafka_latency", __doc__.splitlines()[0], EXAMPLE)
    add_options(parser)
    add_feed_options(parser, seconds=60, warm_up=10, java=60)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 16], help="of documents (1 16)")
    parser.add_argument("--processes", default="groups", choices=("one", "groups", "roles"), help="(%(default)s)")
    parser.add_argument("--roles", default=",".join(ROLES), help="of the worker; forward may be missing (%(default)s)")
    parser.add_argument("--shards", type=int, default=1, help="(%(default)s)")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
