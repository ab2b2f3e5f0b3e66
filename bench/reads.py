"""What reads of a service cost, and what they cost others: tables of many groups, documents during an import, and
comparisons of long texts.

1. The table of an index with so many groups, in each order, while a document is added before each request.
2. Documents added one after the other: alone, with one page open (the table every two seconds), and during eight
   comparisons of two texts of 200,000 characters.
3. A document that is read during an import of lines.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from bench import report
from bench.engine import COMMAND
from bench.serve import started
from stream_lsh.embedded.group_store import FACT, MEMBER, encoded, members_key, row_key
from stream_lsh.index.store.rocksdb import Store, name_key
from stream_lsh.judging.groups import Group
from stream_lsh.kafka.tools.broker import free_port

EXAMPLE = "python -m bench.reads --groups 1000000 --out results"
NOW = 1_700_000_000_000
DAYS = 10 * 24 * 3600 * 1000  # in which the members of the groups joined
FIRST = 1 << 40  # number of the first group that is made
AT_ONCE = 50_000
COLUMNS = {"what": "request", "median": "median ms", "slowest": "slowest ms", "requests": "requests"}
LINES = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}


def make(folder: Path, groups: int) -> None:
    """An index with so many groups: most of two members, few of many."""
    text = "the council has voted for the new bridge over the river"
    feed = "".join(json.dumps({"id": f"{i}", "text": text, "ts": NOW + i, "from": "a"}) + "\n" for i in range(2))
    command = [*COMMAND, "dedup", "-", "--index", str(folder), "--time-field", "ts", "--source-field", "from"]
    subprocess.run([*command, "--quiet"], input=feed.encode(), stdout=subprocess.DEVNULL, check=True)
    chance = np.random.default_rng(20261126)
    joins = np.minimum(chance.zipf(2.2, groups), 2000)
    store = Store(folder / "db")
    for begin in range(0, groups, AT_ONCE):
        values: dict[bytes, bytes | None] = {}
        for at in range(begin, min(begin + AT_ONCE, groups)):
            number, count = FIRST + 4096 * at, int(joins[at])
            times = np.sort(NOW - chance.integers(0, DAYS, count + 1))
            members = np.zeros(count, MEMBER)
            members["seq"], members["time"], members["kind"] = number + 1 + np.arange(count), times[1:], 1
            members["id"], members["source"] = 4, 3
            values[members_key(number, number + 1)] = encoded(members, [b'"m1"', b'"b"'] * count)
            row = Group(number, b'"m"', number, count, count + 1, count + 1, int(times[0]), int(times[-1]), 1, [b'"b"'])
            values[row_key(number)] = row.json
        store.write(values)
    store.write({name_key(FACT): orjson.dumps({**(store.named(FACT) or {}), "latest": NOW})})
    store.close()


class Client:
    """A connection that stays open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        self._words = random.Random(time.monotonic_ns())

    def get(self, path: str) -> float:
        """Seconds of a request; those that are refused count, too."""
        return self._timed("GET", path, None, {})

    def add(self, documents: int = 1, words: int = 100, copies: bool = False, prefix: str = "") -> float:
        """Seconds of a request that adds documents."""
        some = [self._document(words, f"{prefix}{i}") for i in range(documents)]
        if copies:
            some += [{**some[0], "id": f"{some[0]['id']}-copy"}]
        body = b"\n".join(map(orjson.dumps, some))
        return self._timed("POST", "/v1/documents", body, JSON if len(some) == 1 else LINES)

    def _document(self, words: int, name: str) -> dict[str, Any]:
        text = " ".join(f"word{self._words.randrange(50_000)}" for _ in range(words))
        return {"id": name or str(self._words.random()), "text": text, "ts": NOW, "from": "a"}

    def _timed(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> float:
        begun = time.perf_counter()
        self._connection.request(method, path, body, headers)
        self._connection.getresponse().read()
        return time.perf_counter() - begun


def row(what: str, seconds: list[float]) -> dict[str, Any]:
    return {
        "kind": "reads", "what": what, "median": 1000 * statistics.median(seconds), "slowest": 1000 * max(seconds),
        "requests": len(seconds),
    }  # fmt: skip


@contextmanager
def beside(work: Callable[[Client], object], port: int, clients: int = 1) -> Iterator[None]:
    """Clients that do some work again and again."""
    ended = threading.Event()

    def run() -> None:
        client = Client(port)
        while not ended.is_set():
            work(client)

    threads = [threading.Thread(target=run) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def page(client: Client) -> None:
    """What an open page asks for, every two seconds."""
    client.get("/v1/stats?seconds=120")
    client.get("/v1/groups?order=growing&limit=20")
    time.sleep(2)


def measured(port: int, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    client = Client(port)
    yield row("the first table", [client.get("/v1/groups")])
    for path in ("order=largest", "order=newest", "order=growing", "order=largest&since=24h", "order=growing&since=7d"):
        seconds = []
        for _ in range(given.requests):
            client.add(copies=True)
            seconds.append(client.get(f"/v1/groups?{path}"))
        yield row(f"table, {path}", seconds)

    def adding() -> list[float]:
        end, found = time.monotonic() + given.seconds, []
        while time.monotonic() < end:
            found.append(client.add())
        return found

    yield row("a document is added", adding())
    with beside(page, port):
        yield row("the same with a page open", adding())
    for prefix in ("long-a", "long-b"):
        client.add(1, 20_000, prefix=prefix)
    with beside(lambda other: other.get("/v1/compare?a=long-a0&b=long-b0"), port, 8):
        yield row("the same during 8 comparisons", adding())
    client.add(1, prefix="known")
    yield row("a document is read", [client.get("/v1/documents/known0") for _ in range(200)])
    with beside(lambda other: other.add(given.documents), port):
        end, found = time.monotonic() + given.seconds, []
        while time.monotonic() < end:
            found.append(client.get("/v1/documents/known0"))
            time.sleep(0.01)
        yield row("the same during an import", found)


def run(given: argparse.Namespace) -> None:
    where = report.environment()
    given.work.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=given.work, prefix="reads-") as folder:
        index, port = Path(folder, "index"), free_port()
        make(index, given.groups)
        with started([*COMMAND, "serve", "--index", str(index), "--port", str(port), "--quiet"], port) as process:
            for each in measured(port, given):
                found.append(each)
                print(report.table(COLUMNS, found[-1:]).splitlines()[-1], flush=True)
            found.append({"kind": "memory", "mb": process.megabytes()})
    print(f"\n{report.table(COLUMNS, found[:-1])}\n{found[-1]['mb']:.0f} MB")
    text = f"{given.groups:,} groups, {found[-1]['mb']:.0f} MB:\n\n{report.table(COLUMNS, found[:-1], markdown=True)}"
    report.write(given.out, "reads", where, found, text)


def main() -> None:
    parser = report.parser("reads", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--groups", type=int, default=1_000_000, help="of the index (%(default)s)")
    parser.add_argument("--requests", type=int, default=20, help="of each table (%(default)s)")
    parser.add_argument("--seconds", type=int, default=10, help="each of the other parts, so long (%(default)s)")
    parser.add_argument("--documents", type=int, default=20_000, help="of a request of the import (%(default)s)")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
