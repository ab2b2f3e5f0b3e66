"""How long until something comes out: from the start of the process, and from a document in a feed to its pair.

1. Start: `stream-lsh dedup -` is given one document and its standard input stays open; the clock runs from the start of
   the process to the line of that (unique) document on standard output. With an empty folder for the compiled kernels
   (the very first start after installation), and with a full one (every later start).
2. Latency: `producer | stream-lsh pairs - | consumer`; the producer writes a document, or a thousand, a second; the
   clock runs from the writing of a document that repeats an earlier one to its pair at the consumer.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from bench import report
from bench.corpora import corpus, unpack
from bench.engine import COMMAND, comparison_options

EXAMPLE = "python -m bench.first_verdict --starts 3 --seconds 10 --out results"
ENOUGH_WORDS = 200  # a post of so many words stays above a Jaccard of 0.8 when its last word is another one
REPEATED = 10  # at many documents a second every tenth repeats one; at few, every one
STARTS = {"start": "start", "median": "median s", "fastest": "fastest s", "slowest": "slowest s", "starts": "starts"}
LATENCIES = {
    "rate": "documents/s", "p50": "median ms", "p90": "90 % ms", "p99": "99 % ms", "slowest": "slowest ms",
    "pairs": "pairs", "missing": "missing",
}  # fmt: skip


def first_verdict(line: bytes, options: Sequence[str], variables: Mapping[str, str]) -> float:
    """Seconds from the start of `stream-lsh dedup -` to the first document on its standard output."""
    start = time.perf_counter()
    with started("dedup", options, variables) as process:
        feed, results = pipes(process)
        feed.write(line)
        feed.flush()
        if not results.readline():
            raise SystemExit("stream-lsh dedup ended without a verdict; what it said stands above")
        return time.perf_counter() - start


def starts(kind: str, times: int, line: bytes, options: Sequence[str], cache: Path) -> Iterator[dict[str, Any]]:
    """A row for each of so many starts; "cold": each with a fresh folder for the compiled kernels, "warm": with one."""
    if kind == "warm":
        first_verdict(line, options, {"NUMBA_CACHE_DIR": str(cache / "warm")})
    for number in range(times):
        folder = cache / (f"cold-{number}" if kind == "cold" else "warm")
        seconds = first_verdict(line, options, {"NUMBA_CACHE_DIR": str(folder)})
        print(f"  {kind} start {number + 1}: {seconds:.2f} s", flush=True)
        yield {"kind": "start", "start": kind, "seconds": seconds}


def feed_lines(posts: Path, number: int, every: int) -> Iterator[tuple[str, bytes, bool]]:
    """(id, line, does it repeat an earlier one?): long posts, and every so often an earlier one with a word changed."""
    with posts.open("rb") as lines:
        documents = (orjson.loads(line) for line in lines)
        texts = [d["title"] + " " + d["text"] for d in islice((d for d in documents if _long(d)), number)]
    yield "first", _line("first", texts[0]), False
    for i in range(1, number):
        name = f"document-{i}"
        if i % every == 0:
            source = texts[(i - every // 2) % len(texts) if every > 1 else 0]
            yield name, _line(name, f"{source} changed{i}"), True
        else:
            yield name, _line(name, texts[i % len(texts)]), False


def latencies(posts: Path, rate: float, seconds: float, options: Sequence[str]) -> dict[str, Any]:
    """Run the pipe at a rate; a row of the times from writing a document to its pair, in ms.

    Between the first document and the rest there is a pause until the process is up: its start is not what is measured.
    """
    every = REPEATED if rate > REPEATED else 1
    written: dict[str, float] = {}
    seen: dict[str, float] = {}
    with started("pairs", options, {}) as process:
        feed, results = pipes(process)

        def consume() -> None:
            for line in results:
                now = time.perf_counter()
                seen.setdefault(orjson.loads(line)["newer"], now)

        consumer = threading.Thread(target=consume, daemon=True)
        consumer.start()
        lines = feed_lines(posts, max(2, round(rate * seconds)) + 2, every)
        _, first, _ = next(lines)
        feed.write(first)
        feed.flush()
        _wait_until_up(feed, seen, orjson.loads(first)["text"])
        begin = time.perf_counter()
        for i, (name, line, repeats) in enumerate(lines):
            pause = begin + i / rate - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            if repeats:
                written[name] = time.perf_counter()
            feed.write(line)
            feed.flush()
        elapsed = time.perf_counter() - begin
        feed.close()
        consumer.join(timeout=60)
    found = [1000 * (seen[name] - at) for name, at in written.items() if name in seen]
    quantiles = np.quantile(found, [0.5, 0.9, 0.99, 1.0]).tolist() if found else [None] * 4
    return {
        "kind": "latency", "rate": rate, "reached": i / elapsed, "pairs": len(found),
        "missing": len(written) - len(found),
        **dict(zip(("p50", "p90", "p99", "slowest"), quantiles, strict=True)),
    }  # fmt: skip


@contextlib.contextmanager
def started(command: str, options: Sequence[str], variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """`stream-lsh <command> -` with pipes on both sides; at the end its input is closed, it is stopped if need be."""
    process = subprocess.Popen(
        [*COMMAND, command, "-", "--quiet", *options],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **variables},
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(OSError):
            pipes(process)[0].close()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        pipes(process)[1].close()


def pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    """Standard input and standard output of a process that was started with pipes."""
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout


def _wait_until_up(feed: IO[bytes], seen: Mapping[str, float], text: str, limit: float = 300.0) -> None:
    """Write a copy of the first document and wait for its pair."""
    feed.write(_line("up", text + " up"))
    feed.flush()
    end = time.perf_counter() + limit
    while "up" not in seen:
        if time.perf_counter() > end:
            raise SystemExit(f"stream-lsh pairs found no pair within {limit:g} s")
        time.sleep(0.01)


def _long(document: Mapping[str, Any]) -> bool:
    return len(document["text"].split()) >= ENOUGH_WORDS


def _line(name: str, text: str) -> bytes:
    return orjson.dumps({"id": name, "text": text}) + b"\n"


def summarize_starts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Median, fastest and slowest start of each kind."""
    summaries = []
    for kind in dict.fromkeys(row["start"] for row in rows):
        found = [row["seconds"] for row in rows if row["start"] == kind]
        summaries.append(
            {
                "kind": "start-summary", "start": kind, "median": statistics.median(found), "fastest": min(found),
                "slowest": max(found), "starts": len(found),
            }
        )  # fmt: skip
    return summaries


def run(given: argparse.Namespace) -> None:
    where = report.environment()
    posts = unpack(corpus("posts-120k"), given.data, given.work)
    options = comparison_options(0.8, ("text",)) + shlex.split(given.options)
    line = next(feed_lines(posts, 1, 1))[1]
    with tempfile.TemporaryDirectory(dir=given.work, prefix="kernels-") as cache:
        rows = [row for kind in ("cold", "warm") for row in starts(kind, given.starts, line, options, Path(cache))]
    summaries = summarize_starts(rows)
    print(f"\n{report.table(STARTS, summaries)}\n", flush=True)
    found = []
    for rate in given.rates:
        found.append(latencies(posts, rate, given.seconds, options))
        print(f"  {rate:g} a second: {found[-1]['pairs']} pairs, {found[-1]['missing']} missing", flush=True)
    print(f"\n{report.table(LATENCIES, found)}")
    texts = [
        "From the start of the process to the first document that comes out:",
        report.table(STARTS, summaries, markdown=True),
        "From writing a document into the pipe to reading its pair:",
        report.table(LATENCIES, found, markdown=True),
    ]
    report.write(given.out, "first_verdict", where, [*rows, *summaries, *found], "\n\n".join(texts))


def main() -> None:
    parser = report.parser("first_verdict", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--starts", type=int, default=5, help="starts of each kind (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30, help="length of the feed at each rate (%(default)s)")
    parser.add_argument("--rates", type=float, nargs="+", default=[1, 1000], help="documents a second (1 1000)")
    parser.add_argument("--options", default="", help='more options for stream-lsh, for example "--index index"')
    run(parser.parse_args())


if __name__ == "__main__":
    main()
