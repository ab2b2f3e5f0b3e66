"""Short notes: what settings find among headlines and rewritten answers, and what a call of `stream-lsh mcp` takes.

Headlines: two of one story (labelled by hand) should be found, two of different stories should not. Answers: a text and
its rewritten copies, from `cut` (pasted together) to `heavy` (in other words), and independent answers (`non`) to the
same question. All pairs count, so that the order does not (`--compare-with all`).

A call: an agent checks a note and adds it, at a rate, over the protocol, with a number of notes in the index. The
answer to `add` waits for the disk. The time is that of the server and the pipes: the agent's own client comes on top.

Beside it, what a program would do in its own memory, without an index: compare each note with all earlier ones.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from rapidfuzz import fuzz, process

from bench import report
from bench.corpora import corpus, unpack
from stream_lsh import Deduplicator, Document, Settings, prepare
from stream_lsh.mcp import FOR_NOTES

EXAMPLE = "python -m bench.notes --out results"
KINDS = ("cut", "light", "heavy", "non")
SHINGLES = ("chars:3", "chars:4", "chars:5", "words:1", "words:3")
THRESHOLDS = (0.4, 0.5, 0.6, 0.8)
QUALITY = {
    "settings": "settings", "same": "headlines of one story", "other": "of two", **{kind: kind for kind in KINDS},
}  # fmt: skip
CALLS = {"call": "call", "p50": "median ms", "p99": "99 % ms", "max": "most ms"}


def found(settings: Settings, texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The pairs of texts that match, the earlier first."""
    with Deduplicator(settings) as deduplicator:
        for verdict in deduplicator.process(Document(i, text) for i, text in enumerate(texts)):
            yield from ((int(match.id), int(verdict.id or 0)) for match in verdict.matches)


def quality(
    settings: Settings, headlines: Sequence[Mapping[str, str]], answers: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """A row: what is found of what should be, and of what should not."""
    stories = [item["story"] for item in headlines]
    told = Counter(stories[a] == stories[b] for a, b in found(settings, [item["title"] for item in headlines]))
    same = sum(a == b for a, b in combinations(stories, 2))
    rewritten = Counter[str]()
    for a, b in found(settings, [item["text"] for item in answers]):
        one, other = answers[a], answers[b]
        if one["task"] == other["task"] and "orig" in (one["category"], other["category"]):
            rewritten[other["category"] if one["category"] == "orig" else one["category"]] += 1
    of = Counter(item["category"] for item in answers)
    return {
        "settings": f"{settings.shingles}, {settings.threshold:g}", "same": f"{told[True]} of {same}",
        "other": str(told[False]), **{kind: f"{rewritten[kind]} of {of[kind]}" for kind in KINDS},
    }  # fmt: skip


class Agent:
    """A client of `stream-lsh mcp` that sends lines to its pipes."""

    def __init__(self, index: Path) -> None:
        command = [sys.executable, "-m", "stream_lsh", "mcp", "--index", str(index), "--quiet"]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._calls = 0
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self._ask("initialize", hello)
        self._send({"method": "notifications/initialized"})

    def call(self, tool: str, text: str) -> float:
        """Call a tool with a text. Returns seconds."""
        start = time.perf_counter()
        answer = self._ask("tools/call", {"name": tool, "arguments": {"text": text}})
        seconds = time.perf_counter() - start
        assert not orjson.loads(answer)["result"]["isError"], answer
        return seconds

    def _ask(self, method: str, given: Mapping[str, Any]) -> bytes:
        self._calls += 1
        self._send({"id": self._calls, "method": method, "params": given})
        assert self._server.stdout is not None
        return self._server.stdout.readline()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n")
        self._server.stdin.flush()

    def close(self) -> None:
        self._server.communicate()


def calls(notes: Sequence[str], before: int, rate: float) -> list[dict[str, Any]]:
    """Rows: quantiles of the time of `check`, of `add`, and of both, in ms, with `before` notes in the index."""
    took: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        with Deduplicator(Settings(**FOR_NOTES), index=index) as deduplicator:
            for _ in deduplicator.process(Document(f"n{i}", text) for i, text in enumerate(notes[:before])):
                pass
        with closing(Agent(index)) as agent:
            begin = time.perf_counter()
            for i, text in enumerate(notes[before:]):
                time.sleep(max(0.0, begin + i / rate - time.perf_counter()))
                took.append((agent.call("check", text), agent.call("add", text)))
    times = np.array(took[len(took) // 10 :])  # without the first calls, which warm the caches
    columns = {"check": times[:, 0], "add": times[:, 1], "check and add": times.sum(axis=1)}
    return [_quantiles(name, values) for name, values in columns.items()]


def _quantiles(name: str, seconds: Any) -> dict[str, Any]:
    p50, p99 = (1000 * np.quantile(seconds, [0.5, 0.99])).tolist()
    return {"call": name, "p50": p50, "p99": p99, "max": 1000 * float(np.max(seconds))}


def comparisons(notes: Sequence[str], before: int) -> list[dict[str, Any]]:
    """Rows: the same of a program that compares each note with all earlier ones, in memory, and stores nothing."""
    threshold = float(FOR_NOTES["threshold"])

    def shingles(note: str) -> frozenset[str]:
        small = note.lower()
        return frozenset(small[at : at + 3] for at in range(max(1, len(small) - 2)))

    def jaccard(note: str, earlier: list[frozenset[str]]) -> None:
        own = shingles(note)
        [other for other in earlier if len(own & other) >= threshold * len(own | other)]
        earlier.append(own)

    def ratio(note: str, earlier: list[str]) -> None:
        process.extract(note, earlier, scorer=fuzz.ratio, score_cutoff=100 * threshold, limit=None)
        earlier.append(note)

    ways: dict[str, tuple[Callable[[str, Any], None], list[Any]]] = {
        "all earlier notes: Jaccard of Python sets": (jaccard, list(map(shingles, notes[:before]))),
        "all earlier notes: `rapidfuzz`, ratio": (ratio, list(notes[:before])),
    }
    rows = []
    for name, (compare, earlier) in ways.items():
        took = list[float]()
        for note in notes[before:]:
            begin = time.perf_counter()
            compare(note, earlier)
            took.append(time.perf_counter() - begin)
        rows.append(_quantiles(name, took))
    return rows


def main() -> None:
    parser = report.parser("notes", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--before", type=int, default=20_000, help="notes in the index (%(default)s)")
    parser.add_argument("--calls", type=int, default=3000, help="calls (%(default)s)")
    parser.add_argument("--rate", type=float, default=100, help="calls a second (%(default)s)")
    parser.add_argument("--comparisons", type=int, default=200, help="notes compared with all (%(default)s)")
    given: argparse.Namespace = parser.parse_args()
    where = report.environment()
    headlines, answers = (
        list(map(orjson.loads, (given.data / f"{name}.jsonl").read_bytes().splitlines()))
        for name in ("stories", "rewrites")
    )
    prepare(Settings(**FOR_NOTES))
    rows = [
        quality(Settings(shingles=shingles, threshold=threshold, compare_with="all", max_matches=0), headlines, answers)
        for shingles in SHINGLES
        for threshold in THRESHOLDS
    ]
    with unpack(corpus("posts-120k"), given.data, given.work).open("rb") as lines:
        titles = [
            orjson.loads(line)["title"] for _, line in zip(range(given.before + given.calls), lines, strict=False)
        ]
    times = calls(titles, given.before, given.rate)
    times += comparisons(titles[: given.before + given.comparisons], given.before)
    print(f"{report.table(QUALITY, rows)}\n\n{report.table(CALLS, times)}")
    texts = [report.table(QUALITY, rows, markdown=True), report.table(CALLS, times, markdown=True)]
    report.write(given.out, "notes", where, [*rows, *times], "\n\n".join(texts))


if __name__ == "__main__":
    main()
