"""Documents a second from end to end: a full documents topic, then `stream-lsh kafka worker`, until the last verdict.

The documents are posts, or feeds in which copies crowd (bench/feeds.py). They are produced first. Then the worker is
started as a user starts it, with one process, a process for each group of roles or for each role, and 1, 2 or 4 shards.
The clock runs from the first document that was consumed (the time that is in its frame) until a reader that sees only
what is committed sees the last verdict. Kafka runs on the same machine. Beside it, on the first documents of the same,
the plain Faust way (bench/plain_faust.py).
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from bench import plain_faust, report
from bench.feeds import FEEDS
from bench.kafka_feed import Post, feed, fill
from bench.kafka_figures import done_by, in_words, micros, span
from bench.kafka_processes import cpu_between, most_resident, others_between
from bench.kafka_rig import MYSELF, PACKAGES, Progress, Rig, Run, add_options, last_offsets, rig, seen_at
from bench.kafka_stages import STAGES as ROLES
from bench.kafka_stages import weights

EXAMPLE = (
    'python -m bench.kafka_throughput --feeds plain near --settings "compare_with=kept text_field=text" '
    "--runs 2:groups --documents 40000 --plain 0 --out results"
)
REST = 5.0  # seconds after the last document until the processes count as at rest
PAIRED = "pairs"
COLUMNS = {
    "feed": "feed", "name": "shards and processes", "rate": "documents/s", "middle": "in the middle",
    "unique_rate": "with forward", "cpu": "CPU µs/document", "times_faust": "times Faust", "others": "other load",
}  # fmt: skip
MEMORY = {"feed": "feed", "name": "shards and processes", "process": "process", "micros": "CPU µs/document",
          "load": "MB under load", "rest": "MB at rest"}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """How a run is laid out. matchers: workers with only the match role, besides the one with all roles."""

    shards: int
    processes: str
    matchers: int = 0

    @classmethod
    def of(cls, text: str) -> Shape:
        """`SHARDS:PROCESSES` or `SHARDS:PROCESSES:MATCHERS`."""
        shards, _, rest = text.partition(":")
        processes, _, matchers = rest.partition(":")
        if not shards.isdecimal() or processes not in ("one", "groups", "roles") or not (matchers or "0").isdecimal():
            raise argparse.ArgumentTypeError(f"{text!r} is not SHARDS:one|groups|roles or SHARDS:...:MATCH-WORKERS")
        return cls(int(shards), processes, int(matchers or 0))

    def __str__(self) -> str:
        more = f" + {self.matchers} match" if self.matchers else ""
        return f"{self.shards} {'shard' if self.shards == 1 else 'shards'}, {self.processes}{more}"


async def measure(
    rig: Rig, shape: Shape, documents: Sequence[Post], partitions: int, roles: Sequence[str] = ROLES
) -> list[dict[str, Any]]:
    """A row for the run, and one for each of its processes."""
    async with rig.run("throughput", shards=shape.shards, partitions=partitions) as run:
        made = await fill(run.settings, run.topics.documents, partitions, documents)
        worker = run.worker(roles=roles, processes=shape.processes)
        others = [run.worker(roles=["match"], processes="one", name=f"match-{i + 1}") for i in range(shape.matchers)]
        processes = rig.watch(worker, *others)
        for i, other in enumerate(others):
            processes.add(other.pid, f"match worker {i + 2}")
        names = [run.topics.signatures, run.topics.frames, run.topics.matches, run.topics.verdicts, run.topics.unique]
        async with Progress(run, names, processes) as progress:
            n = len(documents)
            verdicts = await progress.records(run.topics.verdicts, lambda found: len(found) >= n, n)
            found = [orjson.loads(record.value) for record in verdicts]
            kinds = Counter(verdict["kind"] for verdict in found)
            start = min(verdict["detected_at"] for verdict in found) / 1000
            end = seen_at(progress.ends, last_offsets(verdicts))
            forwarded = None
            if "forward" in roles:
                passed = kinds["unique"]
                unique = await progress.records(run.topics.unique, lambda found: len(found) >= passed, passed)
                forwarded = seen_at(progress.ends, last_offsets(unique))
            await asyncio.sleep(REST)
            rest = processes.look()
        return rows(run, shape, n, made, start, end, forwarded, progress, verdicts, kinds, rest)


def rows(
    run: Run, shape: Shape, n: int, made: float, start: float, end: float, forwarded: float | None, progress: Progress,
    verdicts: Sequence[Any], kinds: Counter[str], rest: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """What `measure` has seen, as rows."""
    assert progress.processes is not None
    looks = progress.processes.looks
    first, last, inside = span(*done_by(progress.ends, weights(verdicts, lambda _: 1.0)))
    cpu = micros(cpu_between(looks, start, max(end, forwarded or end)), n, MYSELF)
    load = most_resident(looks, start, end)
    name = str(shape)
    total = {
        "kind": "throughput", "name": name, "shards": shape.shards, "processes": shape.processes,
        "match_workers": shape.matchers, "documents": n, "partitions": run.settings.partitions,
        "verify": run.settings.verify, "seconds": end - start,
        "rate": n / (end - start), "middle": inside / (last - first), "others": others_between(looks, start, end),
        "signed_seconds": progress.final(run.topics.signatures) - start,
        "sequenced_seconds": progress.final(run.topics.frames) - start,
        "matched_seconds": progress.final(run.topics.matches) - start,
        "unique_rate": n / (forwarded - start) if forwarded else None,
        "cpu": sum(cpu.values()), "produced": made, "verdicts": dict(kinds),
        "given_twice": len(verdicts) - n,
    }  # fmt: skip
    return [total] + [
        {
            "kind": "process", "name": name, "process": process, "micros": cpu.get(process),
            "load": load.get(process, 0) / 1e6, "rest": rest.usage[process].resident / 1e6,
        }
        for process in sorted(rest.usage.keys() - {MYSELF})
    ]  # fmt: skip


async def run(given: argparse.Namespace) -> None:
    where = report.environment(PACKAGES)
    feeds = {name: feed(name, given.data, given.work, given.documents) for name in given.feeds}
    documents = feeds[given.feeds[0]]
    found: list[dict[str, Any]] = []
    with rig(given) as here:
        if given.warm_up:  # Java compiles for some seconds, numba the first time
            await measure(here, given.runs[0], documents[: given.warm_up], given.partitions, given.roles.split(","))
        plain = None
        if given.plain:
            plain = await plain_faust.measure(here, documents[: given.plain])
            found.append(plain)
            print(f"plain Faust: {plain['rate']:,.0f} documents/s", flush=True)
        for shape in given.runs:
            for name, documents in feeds.items():
                made = await measure(here, shape, documents, given.partitions, given.roles.split(","))
                if plain is not None:
                    made[0]["times_faust"] = made[0]["rate"] / plain["rate"]
                found += [{"feed": name, **row} for row in made]
                print(f"{name}, {shape}: {made[0]['rate']:,.0f} documents/s, {made[0]['verdicts']}", flush=True)
    totals = [row for row in found if row["kind"] != "process"]
    processes = [row for row in found if row["kind"] == "process"]
    title = f"{given.documents:,} documents of a feed in {given.partitions} partitions"
    print(f"\n{title}\n{report.table(COLUMNS, totals)}\n\n{report.table(MEMORY, processes)}")
    if plain is not None:
        print(f"plain Faust, CPU µs/document: {in_words(plain['micros'])}")
    parts = [title, report.table(COLUMNS, totals, markdown=True), report.table(MEMORY, processes, markdown=True)]
    report.write(given.out, "kafka_throughput", where, found, "\n\n".join(parts))


def main() -> None:
    parser = report.parser("kafka_throughput", __doc__.splitlines()[0], EXAMPLE)
    add_options(parser)
    parser.add_argument("--documents", type=int, default=120_000, help="how many, of each feed (%(default)s)")
    parser.add_argument(
        "--feeds", nargs="+", choices=("posts", *FEEDS), default=["posts"], help="what is fed (%(default)s)"
    )
    parser.add_argument("--partitions", type=int, default=4, help="of the documents topic (%(default)s)")
    parser.add_argument(
        "--runs", type=Shape.of, nargs="+", metavar="SHAPE", help="SHARDS:one|groups|roles[:MATCH-WORKERS] of each run",
        default=[Shape.of(text) for text in ("1:groups", "1:one", "1:roles", "2:groups", "4:groups", "2:groups:1")],
    )  # fmt: skip
    parser.add_argument("--roles", default=",".join(ROLES), help="of the worker; forward may be missing (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=60_000, help="documents of a run before the first (%(default)s)")
    parser.add_argument("--plain", type=int, default=2000, help="documents for plain Faust; 0 = none (%(default)s)")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
