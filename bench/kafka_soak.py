"""The whole pipeline under a steady feed for long: whether memory stops growing, and latency stays what it was.

As bench/kafka_latency.py, but for an hour or a night, with a row for every minute: documents so far, how late the pairs
of that minute were, what each process has resident, what the index and the broker's topics take on disk, and how many
files there are and are open.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bench import report
from bench.kafka_feed import Post, source, steady, with_copies
from bench.kafka_figures import quantiles
from bench.kafka_latency import Pair, collect, delays, until_up
from bench.kafka_processes import Processes, most_resident
from bench.kafka_rig import MYSELF, PACKAGES, Rig, add_options, rig
from bench.plots import soak_plot
from stream_lsh.index.store.files import disk_bytes

EXAMPLE = "python -m bench.kafka_soak --minutes 60 --out results"
LATE = 3.0  # seconds that pairs of a minute may still come
SHOWN = 12  # rows of the printed table
COLUMNS = {
    "minute": "minute", "documents": "documents", "p50": "p50 ms", "p99": "p99 ms", "slowest": "slowest ms",
    "sign": "sign MB", "match": "match MB", "rest": "sequence, judge, forward MB", "broker": "broker MB",
    "index_mb": "index MB", "files": "its files", "open": "open files", "topics_mb": "topics MB",
}  # fmt: skip


def minutes(data: Path, work: Path, rate: float, number: int, every: int) -> Iterator[list[Post]]:
    """The documents of each minute; one in `every` is a near-copy."""
    share = round(rate * 60)
    with source(data, work, number * share).open("rb") as lines:
        made = (post for post, _ in with_copies((line.rstrip(b"\n") for line in lines), every))
        for _ in range(number):
            yield list(islice(made, share))


async def soak(rig: Rig, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Feed a worker; a row a minute."""
    rows: list[dict[str, Any]] = []
    async with rig.run("soak", verify="signature", partitions=given.partitions, shards=given.shards) as run:
        worker = run.worker()
        processes = rig.watch(worker)
        pairs: list[Pair] = []
        reading = asyncio.create_task(collect(run, pairs))
        looking = asyncio.create_task(look(processes))
        sent: dict[str, float] = {}
        documents = 0
        try:
            await until_up(run, pairs)
            for minute, part in enumerate(minutes(given.data, given.work, given.rate, given.minutes, given.every), 1):
                began = time.time()
                times = await steady(run.settings, run.topics.documents, given.partitions, part, given.rate)
                sent |= {post.id: at for post, at in zip(part, times, strict=True)}
                await asyncio.sleep(LATE)
                run.check()
                documents += len(part)
                rows.append(row(minute, documents, pairs, sent, processes, began))
                index = run.folder / "data-worker"
                rows[-1] |= {
                    "index_mb": disk_bytes(index) / 1e6, "files": sum(len(names) for *_, names in os.walk(index)),
                    "open": open_files(processes),
                    "topics_mb": rig.broker and disk_bytes(rig.broker.folder) / 1e6,
                }  # fmt: skip
                print(report.table(COLUMNS, rows[-1:]), flush=True)
                # Copies are of documents of the last seconds.
                pairs.clear()
                processes.looks.clear()
                sent = dict(zip((post.id for post in part), times, strict=True))
        finally:
            for task in (reading, looking):
                task.cancel()
            await asyncio.wait([reading, looking])
    return rows


def open_files(processes: Processes) -> int:
    """Files and sockets that the worker's processes have open."""
    names = {name for look in processes.looks[-1:] for name in look.usage} - {"broker", MYSELF}
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for name in names for pid in processes.pids(name))


async def look(processes: Processes) -> None:
    """Look at the processes once a second, for ever."""
    while True:
        processes.look()
        await asyncio.sleep(1)


def row(
    minute: int, documents: int, pairs: Sequence[Pair], sent: dict[str, float], processes: Processes, began: float
) -> dict[str, Any]:
    """The figures of a minute."""
    late = list(delays(pairs, sent, began, time.time())["seen"].values())
    resident = {name: size / 1e6 for name, size in most_resident(processes.looks, began, time.time()).items()}
    rest = [size for name, size in resident.items() if name not in ("sign", "match", "broker", "worker", MYSELF)]
    return {
        "kind": "soak", "minute": minute, "documents": documents, "pairs": len(late), **quantiles(late),
        "sign": resident.get("sign"), "match": resident.get("match"), "rest": sum(rest),
        "broker": resident.get("broker"), "resident_mb": resident,
    }  # fmt: skip


async def run(given: argparse.Namespace) -> None:
    where = report.environment(PACKAGES)
    with rig(given) as here:
        rows = await soak(here, given)
    title = f"{given.rate:g} documents/s for {given.minutes} minutes, verify = signature, {given.partitions} partitions"
    step = max(1, len(rows) // SHOWN)
    shown = [row for row in rows if row["minute"] % step == 0 or row is rows[0]]
    print(f"\n{title}\n{report.table(COLUMNS, shown)}")
    report.write(given.out, "kafka_soak", where, rows, f"{title}\n\n{report.table(COLUMNS, shown, markdown=True)}")
    if given.out is not None:
        soak_plot(rows, given.out)


def main() -> None:
    parser = report.parser("kafka_soak", __doc__.splitlines()[0], EXAMPLE)
    add_options(parser)
    parser.add_argument("--rate", type=float, default=1000, help="documents a second (%(default)s)")
    parser.add_argument("--minutes", type=int, default=60, help="how long (%(default)s)")
    parser.add_argument("--every", type=int, default=10, help="one in so many is a near-copy (%(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="of documents (%(default)s)")
    parser.add_argument("--shards", type=int, default=1, help="(%(default)s)")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
