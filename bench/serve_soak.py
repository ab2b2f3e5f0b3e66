"""A service through a long day: writers, listeners and pages at once, until a number of documents is there. Is its
memory flat, and is the last tenth as fast as the first?

Writers post one document at a time over connections that stay open, all together at a rate. Each tenth document is a
near-copy of one before. Listeners read all verdicts. A page asks for what the page of the service shows: the groups
that grow, the totals, the newest documents, each once a second, one request at a time.

--program runs another version: its command up to the folder of the index.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from bench import report
from bench.corpora import corpus, unpack
from bench.engine import COMMAND
from bench.serve import Process, endless, started
from stream_lsh.kafka.tools.broker import free_port

EXAMPLE = "python -m bench.serve_soak --documents 1000000 --rate 2000 --out results"
COLUMNS = {
    "documents": "documents", "rate": "documents/s", "p50": "POST median ms", "p99": "99 % ms",
    "groups_p50": "groups median ms", "groups_p99": "99 % ms ", "memory_mb": "memory MB", "own_mb": "without files MB",
    "cores": "its cores", "failures": "failures",
}  # fmt: skip
PAGE = ("/v1/groups?order=growing&limit=20", "/v1/stats?seconds=60", "/v1/groups?order=newest&limit=20")
PARTS = 10
COPY_EACH = 10


def varied(documents: Iterator[bytes]) -> Iterator[bytes]:
    """Documents, of which each tenth is a near-copy of the one nine before. When the feed begins again, every second
    document gets another text."""
    before: list[str] = []  # texts that are no near-copies
    for number, line in enumerate(documents):
        document = orjson.loads(line)
        turn = int(document["id"].rpartition("-")[2])
        if number % COPY_EACH == COPY_EACH - 1:
            document["text"] = before[0] + " once more"
            before.clear()
        else:
            if turn and number % 2:
                document["text"] = " ".join(f"{word}{turn}" for word in document["text"].split())
            before.append(document["text"])
        yield orjson.dumps(document)


class Times:
    """Seconds that requests took since the last look, and how many were refused or failed."""

    def __init__(self) -> None:
        self.posts: list[float] = []
        self.groups: list[float] = []
        self.failures = 0


async def write(session: aiohttp.ClientSession, coming: Iterator[bytes], clock: Pace, times: Times) -> None:
    """Post documents until there are no more."""
    for body in coming:
        await clock.next()
        began = time.perf_counter()
        async with session.post("/v1/documents", data=body, headers={"Content-Type": "application/json"}) as answer:
            await answer.read()
            times.failures += answer.status not in (200, 201)
        times.posts.append(time.perf_counter() - began)


async def look(session: aiohttp.ClientSession, times: Times) -> None:
    """Ask for what a page shows, for ever."""
    while True:
        for path in PAGE:
            began = time.perf_counter()
            async with session.get(path) as answer:
                await answer.read()
                times.failures += answer.status != 200
            if path is PAGE[0]:
                times.groups.append(time.perf_counter() - began)
        await asyncio.sleep(1)


class Pace:
    """The moments at which documents are sent, so many a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._begun = time.monotonic()
        self._sent = 0

    async def next(self) -> None:
        self._sent += 1
        late = time.monotonic() - self._begun - self._sent / self._rate
        if late < 0:
            await asyncio.sleep(-late)


def row(process: Process, times: Times, documents: int, took: float) -> dict[str, Any]:
    """The figures of a part of the run."""
    posts, groups = (sorted(1000 * each for each in found) or [0.0] for found in (times.posts, times.groups))
    return {
        "documents": documents, "rate": len(times.posts) / took, "p50": statistics.median(posts),
        "p99": posts[int(0.99 * len(posts))], "groups_p50": statistics.median(groups),
        "groups_p99": groups[int(0.99 * len(groups))], "memory_mb": process.megabytes(),
        "own_mb": process.megabytes("anonymous"), "cores": process.cores, "failures": times.failures,
    }  # fmt: skip


async def soak(process: Process, feed: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    """The figures of each tenth of a run."""
    hearing = None
    if given.listeners:
        words = [sys.executable, "-m", "bench.listeners", str(process.port), str(given.listeners), str(given.documents)]
        hearing = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        assert hearing.stdout is not None
        if await hearing.stdout.readline() != b"listening\n":
            raise SystemExit("the listeners did not connect")
    found: list[dict[str, Any]] = []
    coming = varied(endless(feed))
    at_once = aiohttp.TCPConnector(limit=given.writers + given.pages)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{process.port}", connector=at_once) as session:
        times = Times()
        pages = [asyncio.create_task(look(session, times)) for _ in range(given.pages)]
        pace = Pace(given.rate)
        for part in range(PARTS):
            process.begin()
            began = time.monotonic()
            wanted = iter(range(given.documents // PARTS))
            bodies = (next(coming) for _ in wanted)  # one iterator that all writers share
            await asyncio.gather(*(write(session, bodies, pace, times) for _ in range(given.writers)))
            found.append(row(process, times, (part + 1) * (given.documents // PARTS), time.monotonic() - began))
            print(json.dumps(found[-1]), flush=True)
            times.posts, times.groups = [], []
        for page in pages:
            page.cancel()
    if hearing is not None:
        assert hearing.stdout is not None
        print("listeners:", (await hearing.stdout.readline()).decode().strip(), flush=True)
        await hearing.wait()
    return found


def run(given: argparse.Namespace) -> None:
    where = report.environment()
    feed = unpack(corpus("posts-120k"), given.data, given.work)
    port = free_port()
    program = shlex.split(given.program) if given.program else [*COMMAND, "serve", "--quiet", "--index"]
    with tempfile.TemporaryDirectory(dir=given.work, prefix="soak-") as folder:
        fields = ["--text-field", "title", "--text-field", "text", "--time-field", "ts"]
        command = [*program, f"{folder}/index", "--port", str(port), *fields, *shlex.split(given.options)]
        with started(command, port) as process:
            found = asyncio.run(soak(process, feed, given))
    print(f"\n{report.table(COLUMNS, found)}")
    report.write(given.out, "serve-soak", where, found, report.table(COLUMNS, found, markdown=True))


def main() -> None:
    parser = report.parser("serve-soak", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=1_000_000, help="in all (%(default)s)")
    parser.add_argument("--rate", type=int, default=300, help="documents a second (%(default)s)")
    parser.add_argument("--writers", type=int, default=50, help="connections that post (%(default)s)")
    parser.add_argument("--listeners", type=int, default=500, help="of events (%(default)s)")
    parser.add_argument("--pages", type=int, default=10, help="that are open (%(default)s)")
    parser.add_argument("--options", default="", help="more options for stream-lsh serve")
    parser.add_argument("--program", default="", help="command of another version up to the folder")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
