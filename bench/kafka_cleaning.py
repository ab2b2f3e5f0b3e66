"""What cleaning the changelog costs: the same updates with and without it, in turn (`min_cleanable_bytes`).

Each record replaces one of so many documents, chosen at random. All are produced first; the clock runs from the first
reply of match to its last one. Kafka runs on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
from collections.abc import Sequence
from typing import Any

import orjson

from bench import report
from bench.kafka_feed import Post, fill, posts
from bench.kafka_figures import micros
from bench.kafka_processes import cpu_between, others_between
from bench.kafka_rig import MYSELF, PACKAGES, Progress, Rig, add_options, rig
from stream_lsh.kafka.tools.broker import KafkaBroker

EXAMPLE = "python -m bench.kafka_cleaning --ids 20000 --updates 200000 --rounds 1 --out results"
WORDS = 60  # of a text
SEED = 20261128
CLEANED = "everything due is erased"  # in the log of match, once a snapshot
GIVEN = {"on_conflict": "update", "compare_with": "kept"}
COLUMNS = {
    "name": "cleaning", "rate": "documents/s", "ratio": "of without", "match": "match CPU µs/document",
    "all": "all CPU µs/document", "snapshots": "snapshots", "changelog": "changelog MB", "others": "other load",
}  # fmt: skip


def updates(texts: Sequence[Post], ids: int, number: int) -> list[Post]:
    """So many versions of so many documents."""
    chance, found = random.Random(SEED), []
    words = [orjson.loads(post.value)["text"].split() for post in texts]
    for version in range(number):
        text = words[version % len(words)]
        begin = chance.randrange(max(1, len(text) - WORDS))
        id = f"d{chance.randrange(ids)}"
        value = {"id": id, "title": str(version), "text": " ".join(text[begin : begin + WORDS])}
        found.append(Post(id, orjson.dumps(value)))
    return found


async def measure(rig: Rig, documents: Sequence[Post], cleans: bool, least: int) -> dict[str, Any]:
    """One run. least: bytes of a changelog that is cleaned."""
    limit = least if cleans else 0
    async with rig.run("cleaning", shards=1, partitions=4, min_cleanable_bytes=limit, **GIVEN) as run:
        await fill(run.settings, run.topics.documents, run.settings.partitions, documents)
        worker = run.worker(processes="groups")
        processes = rig.watch(worker)
        names = [run.topics.matches, run.topics.verdicts]
        async with Progress(run, names, processes) as progress:
            await progress.settled(run.topics.verdicts, len(documents), still=3)
            begin = next(at for at, ends in progress.ends if progress_of(ends, run.topics.matches))
            end = progress.final(run.topics.verdicts)
        snapshots = worker.log.read_text().count(CLEANED)
        cpu = micros(cpu_between(processes.looks, begin, end), len(documents), MYSELF)
        return {
            "name": "with" if cleans else "without", "seconds": end - begin, "rate": len(documents) / (end - begin),
            "match": cpu.get("match", 0.0), "all": sum(cpu.values()), "snapshots": snapshots,
            "changelog": changelog_bytes(rig.broker, run.topics.changelog) / 1e6,
            "others": others_between(processes.looks, begin, end),
        }  # fmt: skip


def progress_of(ends: Any, topic: str) -> int:
    return sum(end for place, end in ends.items() if place.topic == topic)


def changelog_bytes(broker: KafkaBroker | None, topic: str) -> int:
    """Of its segment files; 0 if the broker is not ours."""
    if broker is None:
        return 0
    return sum(path.stat().st_size for path in broker.folder.rglob(f"{topic}-*/*.log"))


async def run(given: argparse.Namespace) -> None:
    where = report.environment(PACKAGES)
    documents = updates(posts(given.data, given.work, 20_000), given.ids, given.updates)
    found = list[dict[str, Any]]()
    with rig(given) as here:
        await measure(here, documents[: given.warm_up], True, given.least)
        for number in range(given.rounds):
            for cleans in (True, False) if number % 2 else (False, True):
                row = await measure(here, documents, cleans, given.least)
                found.append(row)
                print(f"{row['name']}: {row['rate']:,.0f} documents/s, {row['snapshots']} snapshots", flush=True)
    rows = [middle([row for row in found if row["name"] == name]) for name in ("without", "with")]
    for row in rows:
        row["ratio"] = row["rate"] / rows[0]["rate"]
    title = f"{given.updates:,} versions of {given.ids:,} documents, medians of {given.rounds} rounds"
    print(f"\n{title}\n{report.table(COLUMNS, rows)}")
    report.write(given.out, "kafka_cleaning", where, found, f"{title}\n\n{report.table(COLUMNS, rows, markdown=True)}")


def middle(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The medians of their figures."""
    figures = {key for key, value in rows[0].items() if isinstance(value, int | float)}
    return {"name": rows[0]["name"]} | {key: statistics.median(row[key] for row in rows) for key in figures}


def main() -> None:
    parser = report.parser("kafka_cleaning", __doc__.splitlines()[0], EXAMPLE)
    add_options(parser)
    parser.add_argument("--ids", type=int, default=100_000, help="documents that there are (%(default)s)")
    parser.add_argument("--updates", type=int, default=1_000_000, help="records of them (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=60_000, help="records of a run before the first (%(default)s)")
    parser.add_argument("--least", type=int, default=64 << 20, help="min_cleanable_bytes (%(default)s)")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
