"""What groups cost: whole runs of `stream-lsh dedup --index` with and without --no-groups, in turn, by CPU time.

Three feeds of as many documents: posts; posts, each then corrected twice under its id; and posts with nine exact copies
each, where every document joins a group.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from bench import report
from bench.corpora import corpus, read_documents, unpack
from bench.engine import COMMAND, from_anywhere
from bench.feeds import replaced, vocabulary

EXAMPLE = "python -m bench.groups --documents 10000 --out results"
CORRECTIONS, COPIES = 2, 9  # of a post
COLUMNS = {
    "feed": "feed", "without": "CPU s without", "with": "CPU s with", "times": "times it", "least": "least",
    "most": "most", "bytes": "bytes more a document",
}  # fmt: skip


def feeds(posts: Path, documents: int) -> dict[str, Iterator[tuple[str, str]]]:
    """Ids and texts, by what comes."""
    words, chance = vocabulary(posts), random.Random(20261124)

    def some(number: int) -> list[tuple[str, str]]:
        return list(islice(read_documents(posts, ("title", "text")), number))

    def corrected() -> Iterator[tuple[str, str]]:
        first = some(documents // (1 + CORRECTIONS))
        yield from first
        for _ in range(CORRECTIONS):
            yield from ((id, " ".join(replaced(text.split(), 2, words, chance))) for id, text in first)

    def copied() -> Iterator[tuple[str, str]]:
        for id, text in some(documents // (1 + COPIES)):
            yield id, text
            yield from ((f"{id}-{number}", text) for number in range(COPIES))

    return {"posts": iter(some(documents)), "corrections": corrected(), "copies": copied()}


def run(file: Path, work: Path, *options: str) -> tuple[float, int]:
    """CPU seconds of a run, and bytes of its index."""
    with tempfile.TemporaryDirectory(dir=work, prefix="groups-") as folder:
        index = Path(folder, "index")
        words = [*COMMAND, "dedup", str(file), "--index", str(index), "--unique", os.devnull, "--quiet"]
        process = subprocess.Popen([*words, "--on-conflict", "update", *options], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit("stream-lsh dedup failed; what it said stands above")
        size = sum(path.stat().st_size for path in index.rglob("*") if path.is_file())
        return used.ru_utime + used.ru_stime, size


def measure(given: argparse.Namespace) -> None:
    where = report.environment()
    given.work.mkdir(parents=True, exist_ok=True)
    from_anywhere()
    rows: list[dict[str, Any]] = []
    posts = unpack(corpus("posts-120k"), given.data, given.work)
    with tempfile.TemporaryDirectory(dir=given.work, prefix="groups-") as folder:
        for name, documents in feeds(posts, given.documents).items():
            file = Path(folder, f"{name}.jsonl")
            with file.open("wb") as out:
                out.writelines(orjson.dumps({"id": id, "text": text}) + b"\n" for id, text in documents)
            run(file, given.work)  # compiles
            turns = [(run(file, given.work, "--no-groups"), run(file, given.work)) for _ in range(given.rounds)]
            ratios = [kept[0] / plain[0] for plain, kept in turns]
            more = statistics.median(kept[1] - plain[1] for plain, kept in turns)
            rows.append({
                "kind": "groups", "feed": name, "without": statistics.median(plain[0] for plain, _ in turns),
                "with": statistics.median(kept[0] for _, kept in turns), "times": statistics.median(ratios),
                "least": min(ratios), "most": max(ratios), "bytes": more / given.documents,
            })  # fmt: skip
            print(report.table(COLUMNS, rows[-1:]), flush=True)
    report.write(given.out, "groups", where, rows, report.table(COLUMNS, rows, markdown=True))


def main() -> None:
    parser = report.parser("groups", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=60_000, help="in each feed, up to 120000 (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each, taking turns (%(default)s)")
    given = parser.parse_args()
    if not 10 <= given.documents <= 120_000:
        parser.error("--documents: from 10 to 120,000")
    measure(given)


if __name__ == "__main__":
    main()
