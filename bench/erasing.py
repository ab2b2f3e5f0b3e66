"""Erasing: how long a round holds up a feed, and what a deletion costs in a small index and in a large one.

Into an index that takes updates come so many documents (posts, with words exchanged as bench/edits.py says), then
deletions, of the same ones in both: spread over as many of the first as the smaller index has. Then others come, by a
process that times batches and commits: once while nothing is due, once while all of it is; and a copy of the index is
erased by itself, as `stream-lsh erase` does.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from bench import report
from bench.corpora import corpus, unpack
from bench.edits import make
from bench.engine import from_anywhere
from bench.growth import TRUTHS, grow, read_rows
from bench.one import run
from stream_lsh.embedded.erasure import erase, erasure
from stream_lsh.embedded.information import reading

EXAMPLE = "python -m bench.erasing --documents 10000 --out results"
SETTINGS = {"on_conflict": "update", "deleted_field": "deleted"}
THRESHOLD = 0.8
WAIT = 10  # seconds after which what is deleted is due, where it is to be erased while others come
REPORTS = 10
COLUMNS = {
    "documents": "documents", "deleted": "deleted", "delete_us": "a deletion us", "idle_rate": "others/s",
    "idle_batch_ms": "slowest batch ms", "idle_commit_ms": "slowest commit ms", "erasing_rate": "erasing: others/s",
    "erasing_batch_ms": "slowest batch ms ", "erasing_commit_ms": "slowest commit ms ",
    "erase_ms": "a version alone ms",
}  # fmt: skip


def ids(file: Path, documents: int, every: int) -> Iterable[bytes]:
    """Deletions of every so many of the first documents."""
    with file.open("rb") as lines:
        for line in islice(lines, 0, documents, every):
            yield orjson.dumps({"id": orjson.loads(line)["id"], "deleted": True}) + b"\n"


def pauses(state: Path, others: Path, count: int, given: argparse.Namespace) -> dict[str, float]:
    """Others into an index: documents/s, and the slowest batch and commit."""
    reported, pairs = given.work / "erasing-report.jsonl", given.work / "erasing-pairs.jsonl"
    pairs.unlink(missing_ok=True)
    given.every, given.threshold = max(1, count // REPORTS), THRESHOLD
    given.settings = " ".join(map("=".join, SETTINGS.items()))
    grow(["cat", str(others)], state, pairs, reported, given, touched=True)
    rows = read_rows(reported)
    slowest = {name: max(row[name] for row in rows) for name in ("batch_ms", "commit_ms")}
    return {"rate": rows[-1]["documents"] / rows[-1]["seconds"], **slowest}


def erased(state: Path) -> int:
    """How many versions were."""
    with reading(state) as store:
        return erasure(store).erased


def row(documents: int, deleted: int, file: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The figures of an index of so many documents."""
    work, state, copy = given.work, given.work / "erasing-state", given.work / "erasing-copy"
    names = ("before", "deletions", "others")
    before, deletions, others = (work / f"erasing-{name}.jsonl" for name in names)
    with file.open("rb") as lines:
        before.write_bytes(b"".join(islice(lines, documents)))
        others.write_bytes(b"".join(islice(lines, given.others)))  # those behind them
    deletions.write_bytes(b"".join(islice(ids(file, given.documents, given.documents // deleted), deleted)))
    found: dict[str, Any] = {"kind": "row", "documents": documents, "deleted": deleted}
    for name, hours in (("idle", 24.0), ("erasing", WAIT / 3600)):
        shutil.rmtree(state, ignore_errors=True)
        run(before, TRUTHS | SETTINGS, work, {"unique": Path("/dev/null")}, state=state)
        said, _ = run(
            deletions, TRUTHS | SETTINGS | {"erase_hours": hours}, work, {"unique": Path("/dev/null")}, state=state
        )
        if name == "idle":
            found["delete_us"] = 1e6 * said["seconds"] / said["documents"]
            shutil.copytree(state, copy)
            start = time.perf_counter()
            erase(copy, everything=True)
            found["erase_ms"] = 1000 * (time.perf_counter() - start) / erased(copy)
            shutil.rmtree(copy)
        else:
            time.sleep(WAIT + 1)
        found |= {f"{name}_{key}": value for key, value in pauses(state, others, given.others, given).items()}
    with suppress(FileNotFoundError):
        shutil.rmtree(state)
    for path in (before, deletions, others):
        path.unlink()
    print(found, file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = report.parser("erasing", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=40_000, help="in the smaller index (%(default)s)")
    parser.add_argument("--times", type=int, default=10, help="so many times as many in the larger one (%(default)s)")
    parser.add_argument("--deleted", type=int, default=2_000, help="documents that are deleted (%(default)s)")
    parser.add_argument("--others", type=int, default=100_000, help="documents that come meanwhile (%(default)s)")
    given = parser.parse_args()
    if not 0 < given.deleted <= given.documents:
        parser.error("--deleted: from 1 to as many as there are documents")
    where = report.environment()
    given.work.mkdir(parents=True, exist_ok=True)
    from_anywhere()
    file, most = given.work / "erasing-edited.jsonl", given.times * given.documents + given.others
    make(unpack(corpus("posts-120k"), given.data, given.work), file, most)
    rows = [row(n, given.deleted, file, given) for n in (given.documents, given.times * given.documents)]
    file.unlink()
    print(f"\n{report.table(COLUMNS, rows)}")
    report.write(given.out, "erasing", where, rows, report.table(COLUMNS, rows, markdown=True))


if __name__ == "__main__":
    main()
