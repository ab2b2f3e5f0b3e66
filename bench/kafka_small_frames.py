"""Many signers with few documents each: frames a second, what they cost, and how late verdicts are.

A process of its own sends documents one by one, to the partitions in turn. Each signer has one partition, and clients
of its own; ten signers share a process. All other roles have a process each. The clock runs from just before the
producer's `send` until a consumer that sees only what is committed has the document's verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import orjson
from aiokafka import TopicPartition, errors

from bench import report
from bench.kafka_feed import add_feed_options, fed
from bench.kafka_figures import quantiles
from bench.kafka_processes import cpu_between, others_between
from bench.kafka_rig import PACKAGES, PATIENCE, Rig, Run, add_options, reader, rig
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.sign.pacing import MOST_FRAMES

EXAMPLE = "python -m bench.kafka_small_frames --seconds 20 --signers 10 --out results"
TOGETHER = 10  # signers in a process
ROLES = ("sequence", "match", "judge")
COLUMNS = {
    "name": "signers", "limit": "limit", "frames": "frames/s", "documents": "documents a frame", "match": "match cores",
    "sequence": "sequence cores", "judge": "judge cores", "sign": "sign cores", "broker": "broker cores",
    "p50": "p50 ms", "p99": "p99 ms", "slowest": "slowest ms", "missing": "missing", "others": "other load",
}  # fmt: skip


async def watch(run: Run, seen: dict[str, float], ends: list[tuple[float, int]]) -> None:
    """Read verdicts for ever: when each was seen first. And the end of `signatures`, about every second."""
    consumer = await reader(run.settings, [run.topics.verdicts])
    frames = await reader(run.settings, [run.topics.signatures])
    place = TopicPartition(run.topics.signatures, 0)
    try:
        while True:
            batches = await consumer.getmany(timeout_ms=1000)
            now = time.time()
            for records in batches.values():
                for record in records:
                    seen.setdefault(orjson.loads(record.value)["id"], now)
            if not ends or now - ends[-1][0] >= 1:
                end = (await frames.end_offsets([place]))[place]
                ends.append((time.time(), end))
    finally:
        await consumer.stop()
        await frames.stop()


@contextmanager
def signing(run: Run, signers: int, limit: float) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes of so many signers."""
    values = {**run.given, "data_folder": run.folder / "sign"}
    variables = {f"STREAM_LSH_{name.upper()}": str(value) for name, value in values.items()}
    started = list[subprocess.Popen[bytes]]()
    try:
        for first in range(0, signers, TOGETHER):
            command = [sys.executable, "-m", "bench.kafka_signers", "--most-frames", str(limit)]
            command += ["--signers", str(min(TOGETHER, signers - first))]
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, **variables}))
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(PATIENCE)


async def joined(run: Run, signers: int) -> None:
    """Wait until all signers are members of their group."""
    group, end, found = run.topics.group("sign"), time.time() + PATIENCE, 0
    async with admin(run.settings) as client:
        while found < signers:
            run.check()
            if time.time() > end:
                raise SystemExit(f"of {signers} signers {found} have joined their group")
            await asyncio.sleep(1)
            with suppress(errors.KafkaError):  # a new group has no coordinator at first
                [response] = await client.describe_consumer_groups([group])
                _, _, state, _, _, members, *_ = response.groups[0]
                found = len(members) if state == "Stable" else 0


async def measure(rig: Rig, signers: int, limit: float, given: argparse.Namespace, warm_up: float) -> dict[str, Any]:
    """Feed a pipeline with so many signers for a while; a row of figures."""
    async with rig.run("small", verify="signature", partitions=signers) as run:
        worker = run.worker(roles=ROLES, processes="roles")
        processes = rig.watch(worker)
        seen: dict[str, float] = {}
        ends: list[tuple[float, int]] = []
        watching = asyncio.create_task(watch(run, seen, ends))
        try:
            with signing(run, signers, limit) as started:
                for process in started:
                    processes.add(process.pid, "sign")
                await joined(run, signers)
                sent = await fed(run, signers, warm_up + given.seconds, given, processes, watching)
                end = time.time() + PATIENCE
                while len(seen) < len(sent) and time.time() < end:
                    if watching.done():
                        watching.result()
                    processes.look()
                    await asyncio.sleep(0.5)
        finally:
            watching.cancel()
            await asyncio.wait([watching])
    first = min(sent.values()) + warm_up
    last = first + given.seconds
    late = [1000 * (seen[name] - at) for name, at in sent.items() if first <= at < last and name in seen]
    frames = (_at(ends, last) - _at(ends, first)) / given.seconds
    return {
        "kind": "small frames", "name": str(signers), "limit": "-" if math.isinf(limit) else f"{limit:g}",
        "frames": frames, "documents": given.rate / frames, **quantiles(late),
        **{name: cpu / given.seconds for name, cpu in cpu_between(processes.looks, first, last).items()},
        "missing": sum(name not in seen for name in sent), "others": others_between(processes.looks, first, last),
    }  # fmt: skip


def _at(ends: list[tuple[float, int]], moment: float) -> float:
    """The end of `signatures` at a moment, between two looks in proportion."""
    times, offsets = zip(*ends, strict=True)
    return float(np.interp(moment, times, offsets))


async def run(given: argparse.Namespace) -> None:
    where = report.environment(PACKAGES)
    rows: list[dict[str, Any]] = []
    with rig(given) as here:
        for signers in given.signers:
            for limit in given.limits:
                warm_up = given.warm_up if rows else max(given.warm_up, given.java)
                rows.append(await measure(here, signers, limit, given, warm_up))
                print(report.table(COLUMNS, rows[-1:]), flush=True)
    title = f"{given.rate:g} documents/s for {given.seconds:g} s, verify = signature"
    print(f"\n{title}\n{report.table(COLUMNS, rows)}")
    report.write(
        given.out, "kafka_small_frames", where, rows, f"{title}\n\n{report.table(COLUMNS, rows, markdown=True)}"
    )


def main() -> None:
    parser = report.parser("kafka_small_frames", __doc__.splitlines()[0], EXAMPLE)
    add_options(parser)
    add_feed_options(parser, seconds=30, warm_up=20, java=40)
    parser.add_argument("--signers", type=int, nargs="+", default=[1, 10, 50], help="of a partition each (1 10 50)")
    parser.add_argument(
        "--limits", type=float, nargs="+", default=[math.inf, MOST_FRAMES],
        help=f"frames a second of all signers; inf: pauses are linger_ms (inf {MOST_FRAMES})",
    )  # fmt: skip
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
