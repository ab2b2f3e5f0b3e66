"""A service under load, on the same cores as its clients: documents one by one (wrk), as lines (curl), and listeners.

1. 50 connections that stay open, a document a request, each answered when it is on the disk; beside it what one builds
   in an afternoon instead (bench/serve_peer.py), which keeps nothing.
2. Lines: some clients send all their documents in one request each.
3. Listeners of events, while documents come at a fixed rate: what each got, and the memory of the service.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

import orjson

from bench import report
from bench.corpora import corpus, unpack
from bench.engine import COMMAND
from bench.kafka_processes import parse_stat
from bench.process import memory_of
from stream_lsh.kafka.tools.broker import free_port

EXAMPLE = "python -m bench.serve --seconds 20 --minutes 10 --options '--window 1m --time-field ts' --out results"
HERE = Path(__file__).parent
ONE_BY_ONE = {
    "system": "system", "rate": "documents/s", "p50": "median ms", "p99": "99 % ms", "slowest": "slowest ms",
    "errors": "errors", "cores": "its cores", "peak_mb": "peak MB",
}  # fmt: skip
LINES = {"clients": "clients", "rate": "documents/s", "cores": "its cores", "peak_mb": "peak MB"}
LISTENERS = {
    "listeners": "listeners", "rate": "documents/s", "documents": "documents", "least": "received, least",
    "most": "received, most", "gaps": "gaps", "after_mb": "MB after a quarter", "end_mb": "MB at the end",
    "cores": "its cores",
}  # fmt: skip
CONNECTIONS = 50
TICKS = 20  # a second, at each of which documents are sent to the service that is listened to
READY_SECONDS = 300


class Process:
    """A server that is measured.

    Attributes:
        pid: its process.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.pid = process.pid
        self.port = port
        self._begun = self._cpu(), time.monotonic()

    def begin(self) -> None:
        """From now on it is measured."""
        self._begun = self._cpu(), time.monotonic()

    @property
    def cores(self) -> float:
        """How many cores it used since `begin`."""
        cpu, begun = self._begun
        return (self._cpu() - cpu) / (time.monotonic() - begun)

    def _cpu(self) -> float:
        return parse_stat(Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace"))[1]

    def megabytes(self, name: str = "resident") -> float:
        """Its memory now, or at its largest (peak)."""
        return memory_of(self.pid)[name] / 1e6


@contextmanager
def started(command: Sequence[str], port: int) -> Iterator[Process]:
    """A server, ready."""
    process = subprocess.Popen(command)
    try:
        end = time.monotonic() + READY_SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready") as answer:
                    if answer.status == 200:
                        break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{command[0]} did not start; what it said stands above") from None
                time.sleep(0.1)
        yield Process(process, port)
    finally:
        process.terminate()
        process.wait(timeout=60)


@contextmanager
def served(given: argparse.Namespace, *options: str) -> Iterator[Process]:
    """The service on a new index."""
    port = free_port()
    with tempfile.TemporaryDirectory(dir=given.work, prefix="served-") as folder:
        command = [*COMMAND, "serve", "--index", f"{folder}/index", "--port", str(port), "--quiet"]
        command += ["--text-field", "title", "--text-field", "text", *shlex.split(given.options), *options]
        with started(command, port) as process:
            yield process


def one_by_one(system: str, process: Process, feed: Path, seconds: int) -> dict[str, Any]:
    """Documents one by one from many connections."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "30s", "-s", str(HERE / "serve.lua")]
    process.begin()
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{process.port}", "--", str(feed)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {
        "kind": "one by one", "system": system, "rate": found["requests"] / found["seconds"], **found,
        "cores": process.cores, "peak_mb": process.megabytes("peak"),
    }  # fmt: skip


def lines(process: Process, feed: Path, clients: int, folder: Path) -> dict[str, Any]:
    """All documents in one request of each client."""
    everything = feed.read_bytes().splitlines(keepends=True)
    parts = [folder / f"part-{client}.jsonl" for client in range(clients)]
    for client, part in enumerate(parts):
        part.write_bytes(b"".join(everything[client::clients]))
    url = f"http://127.0.0.1:{process.port}/v1/documents"
    command = ["curl", "-sS", "-H", "Content-Type: application/x-ndjson", "-H", "Expect:", url]
    process.begin()
    begun = time.perf_counter()
    running = [
        subprocess.Popen([*command, "--data-binary", f"@{part}", "-o", f"{part}.verdicts"]) for part in parts
    ]  # fmt: skip
    if any(client.wait() for client in running):
        raise SystemExit("a client failed; what it said stands above")
    seconds, cores = time.perf_counter() - begun, process.cores
    answers = sum(Path(f"{part}.verdicts").read_bytes().count(b"\n") for part in parts)
    if answers != len(everything):
        raise SystemExit(f"{len(everything):,} documents got {answers:,} verdicts")
    return {
        "kind": "lines", "clients": clients, "rate": answers / seconds, "cores": cores,
        "peak_mb": process.megabytes("peak"),
    }  # fmt: skip


def endless(feed: Path) -> Iterator[bytes]:
    """The documents of a feed, and then again and again under other ids, with the time as they come."""
    for turn in count():
        with feed.open("rb") as file:
            for line in file:
                document = orjson.loads(line)
                named = {**document, "id": f"{document['id']}-{turn}", "ts": round(1000 * time.time())}
                yield orjson.dumps(named) + b"\n"


def listened(process: Process, feed: Path, listeners: int, rate: int, seconds: int) -> dict[str, Any]:
    """Listeners, while documents come."""
    documents = rate * seconds
    command = [sys.executable, "-m", "bench.listeners", str(process.port), str(listeners), str(documents)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as hearing:
        assert hearing.stdout is not None
        if hearing.stdout.readline() != "listening\n":
            raise SystemExit("the listeners did not connect")
        process.begin()
        memory, coming, begun, every = [], endless(feed), time.monotonic(), rate // TICKS
        connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)
        for tick, at in enumerate(range(0, documents, every)):
            time.sleep(max(0.0, begun + tick / TICKS - time.monotonic()))
            body = b"".join(islice(coming, min(every, documents - at)))
            connection.request("POST", "/v1/documents", body, {"Content-Type": "application/x-ndjson"})
            connection.getresponse().read()
            memory.append(process.megabytes())
        reached, cores = documents / (time.monotonic() - begun), process.cores
        said = json.loads(hearing.stdout.readline())
    return {
        "kind": "listeners", "listeners": listeners, "rate": reached, "documents": documents, **said,
        "after_mb": memory[len(memory) // 4], "end_mb": memory[-1], "cores": cores,
    }  # fmt: skip


def run(given: argparse.Namespace) -> None:
    for tool in ("wrk", "curl"):
        if shutil.which(tool) is None:
            raise SystemExit(f"there is no {tool} here (Debian: apt-get install {tool})")
    where = report.environment()
    feed = unpack(corpus("posts-120k"), given.data, given.work)
    found: list[dict[str, Any]] = []
    with served(given) as process:
        found.append(one_by_one("stream-lsh", process, feed, given.seconds))
    port = free_port()
    with started([sys.executable, "-m", "bench.serve_peer", str(port)], port) as process:
        found.append(one_by_one("FastAPI and datasketch", process, feed, given.seconds))
    print(f"\n{report.table(ONE_BY_ONE, found)}\n", flush=True)
    with served(given) as process, tempfile.TemporaryDirectory(dir=given.work) as folder:
        some = Path(folder) / "feed.jsonl"
        with feed.open("rb") as file, some.open("wb") as kept:
            kept.writelines(islice(file, given.documents))
        found.append(lines(process, some, given.clients, Path(folder)))
    print(f"{report.table(LINES, found[-1:])}\n", flush=True)
    with served(given) as process:
        found.append(listened(process, feed, given.listeners, given.rate, round(60 * given.minutes)))
    print(report.table(LISTENERS, found[-1:]))
    texts = [
        f"{CONNECTIONS} connections, a document a request, {given.seconds} s:",
        report.table(ONE_BY_ONE, [row for row in found if row["kind"] == "one by one"], markdown=True),
        f"Lines, {given.documents:,} documents in {given.clients} requests at once:",
        report.table(LINES, [row for row in found if row["kind"] == "lines"], markdown=True),
        "Listeners of all verdicts:",
        report.table(LISTENERS, [row for row in found if row["kind"] == "listeners"], markdown=True),
    ]
    report.write(given.out, "serve", where, found, "\n\n".join(texts))


def main() -> None:
    parser = report.parser("serve", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--seconds", type=int, default=30, help="documents one by one, so long (%(default)s)")
    parser.add_argument("--documents", type=int, default=100_000, help="of the lines (%(default)s)")
    parser.add_argument("--clients", type=int, default=4, help="that send lines (%(default)s)")
    parser.add_argument("--listeners", type=int, default=500, help="of events (%(default)s)")
    parser.add_argument("--rate", type=int, default=1000, help="documents a second for them (%(default)s)")
    parser.add_argument("--minutes", type=float, default=10, help="so long (%(default)s)")
    parser.add_argument("--options", default="", help='more options for stream-lsh serve, for example "--no-groups"')
    run(parser.parse_args())


if __name__ == "__main__":
    main()
