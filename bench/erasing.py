"""Erasing: how long a round holds up a feed, and what a deletion costs in a small index and in a large one.

Into an index that takes updates come so many documents (posts, with words exchanged as bench/edits.py says), then
deletions, of the same ones in both: spread over as many of the first as the smaller index has. Then others come, by a
process that times batches and commits: once while nothing is due, once while all of it is; and a copy of the index is
erased by itself, as `stream-lsh erase` does.

With --updates: into an index of so many documents come random updates at a rate, and versions are due some seconds
later. How many are due and not erased at the end, and since when? How fast are other documents that come meanwhile, as
fast as they can, beside a run in which nothing is due?

With --chains: groups of so many documents, each of which supersedes the one before it (keep = newest). They are deleted
from the oldest on, or always the kept one. How much CPU do the documents, their deletions and their erasing take?
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
from bench.process import memory_of
from stream_lsh.documents.builder import columns
from stream_lsh.documents.columns import Columns
from stream_lsh.documents.document import Document
from stream_lsh.documents.fields import Fields
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.erasure import erase, erasure
from stream_lsh.embedded.information import reading
from stream_lsh.index.erasure.queue import QueueEntry, count, queue_entries
from stream_lsh.settings.model import Settings

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
UPDATE_COLUMNS = {
    "rate": "updates/s", "updates": "updates", "half": "due at half time", "due": "at the end", "late": "for s",
    "others_rate": "others/s", "of_idle": "of idle", "commit_ms": "slowest commit ms", "close_ms": "close ms",
    "memory_mb": "memory MB",
}  # fmt: skip
CHAIN_COLUMNS = {
    "deleted": "deleted", "documents": "documents", "feed_s": "documents s", "delete_s": "deletions s",
    "erase_s": "erasing s", "erase_ms": "erasing one ms",
}  # fmt: skip
CHAIN_WORDS = 60
BATCH, COMMIT_SECONDS, PAUSE = 2048, 0.5, 0.02
NEVER = 10**6  # seconds


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


@dataclass(frozen=True)
class Feed:
    """Documents of a file as updates of the first ones, and others in between."""

    ids: Sequence[str]
    texts: Sequence[str]

    def batch(self, updates: int, done: int, others: int, taken: int, chance: random.Random) -> Columns:
        """So many updates after `done` ones, and others after `taken` ones, shuffled."""
        texts = self.texts
        found = [Document(chance.choice(self.ids), texts[(done + i) % len(texts)]) for i in range(updates)]
        found += [Document(f"other{taken + i}", texts[(taken + i) % len(texts)]) for i in range(others)]
        chance.shuffle(found)
        return columns(found, Fields())


def due_at(engine: Engine, moment: float) -> list[QueueEntry]:
    """What is due at a moment and not erased, in seconds since 1970."""
    return [entry for entry in queue_entries(engine.index.store) if entry.place.due <= moment]


def updated(base: Path, feed: Feed, rate: int, wait: float, full: bool, given: argparse.Namespace) -> dict[str, Any]:
    """The figures of updates at a rate into a copy of an index. full: others come as fast as they can."""
    state, chance = given.work / "erasing-copy", random.Random(20261122)
    shutil.copytree(base, state)
    engine = Engine.open(Settings(on_conflict="update", erase_hours=wait / 3600), state)
    done = others = 0
    slowest, half = 0.0, -1
    start = committed = time.time()
    while (now := time.time()) < start + given.seconds:
        due = min(BATCH, int(rate * (now - start)) - done)
        if due or full:
            more = BATCH - due if full else 0
            engine.add(feed.batch(due, done, more, others, chance))
            done, others = done + due, others + more
        else:
            time.sleep(PAUSE)
        if now >= committed + COMMIT_SECONDS:
            committed = time.time()
            engine.commit()
            slowest = max(slowest, time.time() - committed)
            if half < 0 and now >= start + given.seconds / 2:
                half = sum(count(entry.versions[1]) for entry in due_at(engine, now))
    took, end = time.time() - start, time.time()
    entries = due_at(engine, end)
    memory = memory_of(os.getpid())["resident"] / 1e6
    closing = time.time()
    engine.close()
    closing = time.time() - closing
    shutil.rmtree(state)
    found = {
        "kind": "updates", "rate": rate, "wait": wait, "updates": done, "others_rate": others / took,
        "half": half, "due": sum(count(entry.versions[1]) for entry in entries),
        "late": max((end - entry.place.due for entry in entries), default=0.0),
        "commit_ms": 1000 * slowest, "close_ms": 1000 * closing, "memory_mb": memory,
    }  # fmt: skip
    print(found, file=sys.stderr, flush=True)
    return found


def updates(file: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    """The figures of all rates."""
    base = given.work / "erasing-base"
    shutil.rmtree(base, ignore_errors=True)
    with file.open("rb") as lines:
        documents = [orjson.loads(line) for line in islice(lines, given.documents + given.others)]
    before, after = documents[: given.documents], documents[given.documents :]
    engine = Engine.open(Settings(on_conflict="update"), base)
    for at in range(0, len(before), BATCH):
        some = before[at : at + BATCH]
        engine.add(columns([Document(line["id"], f"{line['title']} {line['text']}") for line in some], Fields()))
        engine.commit()
    engine.close()
    feed = Feed([line["id"] for line in before], [f"{line['title']} {line['text']}" for line in after])
    rows = [updated(base, feed, rate, given.wait, False, given) for rate in given.updates]
    for rate in given.updates:
        idle, erasing = (updated(base, feed, rate, wait, True, given) for wait in (NEVER, given.wait))
        rows.append(erasing | {"of_idle": erasing["others_rate"] / idle["others_rate"]})
    shutil.rmtree(base)
    return rows


def chain(documents: int, kept: bool, work: Path) -> dict[str, Any]:
    """The CPU seconds of a chain of superseded documents. kept: always the kept document is deleted."""
    state, words = work / "erasing-chain", " ".join(f"word{i}" for i in range(CHAIN_WORDS))
    shutil.rmtree(state, ignore_errors=True)
    ids = [*[documents - 1] * kept, *range(documents - 1)]
    feeds = {
        "feed": [Document(i, f"{words} {i}") for i in range(documents)],
        "delete": [Document(i, deleted=True) for i in ids],
    }
    found: dict[str, Any] = {"kind": "chain", "deleted": "the kept ones" if kept else "the superseded ones"}
    engine = Engine.open(Settings(on_conflict="update", keep="newest"), state)
    for name, feed in feeds.items():
        start = time.process_time()
        for at in range(0, len(feed), BATCH):
            engine.add(columns(feed[at : at + BATCH], Fields()))
            engine.commit()
        found[f"{name}_s"] = time.process_time() - start
    engine.close()
    start = time.process_time()
    erase(state, everything=True)
    found["erase_s"] = time.process_time() - start
    found |= {"documents": documents, "erase_ms": 1000 * found["erase_s"] / erased(state)}
    shutil.rmtree(state)
    print(found, file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = report.parser("erasing", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=40_000, help="in the smaller index (%(default)s)")
    parser.add_argument("--times", type=int, default=10, help="so many times as many in the larger one (%(default)s)")
    parser.add_argument("--deleted", type=int, default=2_000, help="documents that are deleted (%(default)s)")
    parser.add_argument("--others", type=int, default=100_000, help="documents that come meanwhile (%(default)s)")
    parser.add_argument("--updates", type=int, nargs="+", help="random updates a second, instead; for example 300 1000")
    parser.add_argument("--chains", type=int, nargs="+", help="documents of a chain, instead; for example 1000 8000")
    parser.add_argument("--seconds", type=float, default=55.0, help="of updates (%(default)s)")
    parser.add_argument("--wait", type=float, default=5.0, help="seconds until a version is due (%(default)s)")
    given = parser.parse_args()
    if not 0 < given.deleted <= given.documents:
        parser.error("--deleted: from 1 to as many as there are documents")
    where = report.environment()
    given.work.mkdir(parents=True, exist_ok=True)
    if given.chains:
        chain(100, kept=True, work=given.work)  # compiles the kernels
        rows = [chain(n, kept, given.work) for kept in (False, True) for n in given.chains]
        print(f"\n{report.table(CHAIN_COLUMNS, rows)}")
        report.write(given.out, "erasing", where, rows, report.table(CHAIN_COLUMNS, rows, markdown=True))
        return
    from_anywhere()
    file = given.work / "erasing-edited.jsonl"
    most = (1 if given.updates else given.times) * given.documents + given.others
    make(unpack(corpus("posts-120k"), given.data, given.work), file, most)
    if given.updates:
        rows, wanted = updates(file, given), UPDATE_COLUMNS
    else:
        wanted = COLUMNS
        rows = [row(n, given.deleted, file, given) for n in (given.documents, given.times * given.documents)]
    file.unlink()
    print(f"\n{report.table(wanted, rows)}")
    report.write(given.out, "erasing", where, rows, report.table(wanted, rows, markdown=True))


if __name__ == "__main__":
    main()
