"""What an audit takes: `stream-lsh audit --html` on an index of a million documents with sources and event times.

Of the documents, a quarter are earlier ones with up to eight words replaced, and a fiftieth are a footer with three
words of their own. Sources are 5,000, most of the documents of a few of them.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from bench import report
from bench.corpora import corpus, unpack
from bench.engine import COMMAND, from_anywhere
from bench.feeds import WORDS, replaced, texts, vocabulary

EXAMPLE = "python -m bench.audit --documents 100000 --out results"
NEAREST, SOURCES = 10_000, 5000
COLUMNS = {
    "documents": "documents", "dropped": "dropped", "seconds": "seconds", "cpu": "CPU s", "memory_mb": "peak MB",
    "report_mb": "report MB",
}  # fmt: skip


def documents(posts: Path, number: int, work: Path) -> Iterator[dict[str, Any]]:
    """The feed; the same posts always give the same."""
    words, chance, newest = vocabulary(posts), random.Random(20261127), list[list[str]]()
    footer, fresh = words[:WORDS], texts(posts, number, work)
    for n in range(number):
        kind, source = chance.random(), int(chance.paretovariate(0.5)) % SOURCES
        if kind < 0.02:
            text, source = chance.choices(words, k=3) + footer, SOURCES
        elif kind < 0.27 and newest:
            text = replaced(chance.choice(newest), chance.randint(0, 8), words, chance)
        else:
            text = next(fresh)
            newest.append(text)
            if len(newest) > 2 * NEAREST:
                del newest[:NEAREST]
        yield {"id": n, "text": " ".join(text), "source": f"source {source}", "time": 1_700_000_000 + n}


def measured(words: list[str]) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak MB of a command."""
    started = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed; what it said stands above")
    return time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3


def measure(given: argparse.Namespace) -> None:
    where = report.environment()
    given.work.mkdir(parents=True, exist_ok=True)
    from_anywhere()
    posts, index = unpack(corpus("posts-120k"), given.data, given.work), given.work / f"audit-{given.documents}"
    if not (index / "db").exists():
        feed = given.work / f"audit-{given.documents}.jsonl"
        with feed.open("wb") as out:
            for document in documents(posts, given.documents, given.work):
                out.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
        measured([
            *COMMAND, "dedup", str(feed), "--index", str(index), "--unique", os.devnull, "--source-field", "source",
            "--time-field", "time",
        ])  # fmt: skip
        feed.unlink()
    page = given.work / "audit.html"
    command = [*COMMAND, "audit", "--index", str(index)]
    said = subprocess.run([*command, "--json"], check=True, capture_output=True).stdout  # compiles
    seconds, cpu, memory = measured([*command, "--html", str(page)])
    row = {
        "kind": "audit", "documents": given.documents, "dropped": orjson.loads(said)["documents"]["dropped"],
        "seconds": seconds, "cpu": cpu, "memory_mb": memory, "report_mb": page.stat().st_size / 1e6,
    }  # fmt: skip
    print(report.table(COLUMNS, [row]), flush=True)
    report.write(given.out, "audit", where, [row], report.table(COLUMNS, [row], markdown=True))


def main() -> None:
    parser = report.parser("audit", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=1_000_000, help="in the index (%(default)s)")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
