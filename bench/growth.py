"""Throughput, memory and disk while an index grows to many millions of documents, and the time to open it at the end.

The documents are the posts, edited as bench/edits.py says, by a process of its own that writes them into the pipe: the
feed is never on the disk. `dedup` (bench/growing.py) reports after every million. At the end the pairs are compared
with the truth of each segment of posts (a true pair is missed if both its documents were kept), and the finished
index is opened by a query, first with the files dropped from the system's cache, then warm; the same query of an index
of 1,000 documents tells what is start-up.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from bench import report
from bench.corpora import corpus, known_ids, unpack
from bench.engine import COMMAND, from_anywhere, read_pairs, require_success
from bench.one import pairs_of
from bench.plots import growth_plot
from bench.process import Finished, Sample, folder_bytes, watch
from bench.scoring import Pair, read_truth
from stream_lsh.settings.model import Settings

EXAMPLE = "python -m bench.growth --documents 300000 --every 50000 --work made --out results"
POSTS = 120_000
TENTH = 10  # the last tenth of the documents is compared with the first
TRUTHS = {  # of the files of true pairs
    "shingles": "words:3", "tokens": "word", "normalize": "lower,space", "text_field": "title,text",
}  # fmt: skip
WINDOWS = {
    "documents": "documents", "rate": "documents/s", "resident_mb": "resident MB", "anonymous_mb": "own MB",
    "mapped_mb": "file-backed MB", "disk_a_document": "bytes/document on disk", "batch_ms": "slowest batch ms",
    "commit_ms": "slowest commit ms", "runs": "runs", "segments": "segments",
}  # fmt: skip


class Follower:
    """Tells the lines of a report as they come."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def __call__(self, sample: Sample) -> None:
        for row in read_rows(self._path)[self._read :]:
            self._read += 1
            text = f"{row['documents']:,} documents after {row['seconds']:,.0f} s, {row['rate']:,.0f}/s, "
            text += f"{row.get('resident_mb', 0):,.0f} MB, slowest batch {row['batch_ms']:,.0f} ms, "
            text += f"commit {row['commit_ms']:,.0f} ms, {row['runs']} runs"
            print(text, file=sys.stderr, flush=True)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a report."""
    if not path.exists():
        return []
    return [orjson.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def rate_between(rows: Sequence[dict[str, Any]], first: float, last: float) -> float | None:
    """Documents a second from document `first` to document `last`, None if there are no reports in between."""
    at = {0: 0.0} | {row["documents"]: row["seconds"] for row in rows}
    inside = sorted(documents for documents in at if first <= documents <= last)
    if len(inside) < 2:
        return None
    return float((inside[-1] - inside[0]) / max(at[inside[-1]] - at[inside[0]], 1e-9))


def score_segments(
    reported: Iterable[Pair], truth: dict[Pair, float], known: set[str], documents: int, threshold: float
) -> dict[str, int]:
    """The pairs against the truth of each segment of posts that is whole.

    Returns:
        "true_pairs", and how many are "missed": both documents were kept; of the reported pairs inside a segment the
        "false_pairs"; "pairs_of_two_segments".
    """
    whole = range((documents - len(known)) // POSTS + 1 if documents >= len(known) else 0)
    true = {pair for pair, similarity in truth.items() if similarity >= threshold and known.issuperset(pair)}
    dropped: set[str] = set()
    wrong = crossing = 0
    for pair in reported:
        dropped.add(pair[1])
        (one, first), (other, second) = ((name.partition("~")[0], name.partition("~")[2]) for name in pair)
        if first != second:
            crossing += 1
        elif one in known and other in known and int(first or 0) in whole:
            wrong += (min(one, other), max(one, other)) not in true
    missed = sum(
        not dropped.intersection(name + (f"~{segment}" if segment else "") for name in pair)
        for segment in whole
        for pair in true
    )
    return {
        "true_pairs": len(whole) * len(true), "missed": missed, "false_pairs": wrong,
        "pairs_of_two_segments": crossing,
    }  # fmt: skip


def forget(folder: Path) -> None:
    """Drop the files of a folder from the system's cache, so that the next reading comes from the disk."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file() and hasattr(os, "posix_fadvise"):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def openings(state: Path, times: int, name: str) -> list[dict[str, Any]]:
    """Query an index several times, a process each; before the first one its files are dropped from the cache."""
    rows = []
    for number in range(times):
        if number == 0:
            forget(state)
        finished = watch([*COMMAND, "query", "a text that nobody wrote before", "--index", str(state)], every=0.02)
        require_success(finished, "query")
        rows.append(
            {
                "kind": "opening", "index": name, "cache": "cold" if number == 0 else "warm",
                "process_seconds": finished.seconds,
                "peak_mb": finished.peak / 1e6,
            }
        )  # fmt: skip
    return rows


def summary(
    rows: list[dict[str, Any]], finished: Finished, opened: list[dict[str, Any]], size: int, found: dict[str, int]
) -> dict[str, Any]:
    """All figures of the run in one row."""
    documents, seconds = rows[-1]["documents"], rows[-1]["seconds"]
    early, late = (rate_between(rows, *ends) for ends in ((0, documents / TENTH), (documents * 0.9, documents)))
    warm = {name: _warm(opened, name) for name in ("joined_since", "small")}
    return {
        "kind": "summary", "documents": documents, "seconds": seconds, "rate": documents / seconds,
        "early_rate": early, "late_rate": late, "late_to_early": late / early if early and late else None,
        "slowest_window": min(row["rate"] for row in rows), "batch_ms": max(row["batch_ms"] for row in rows),
        "commit_ms": max(row["commit_ms"] for row in rows), "cpu_micros": 1e6 * finished.cpu_seconds / documents,
        "peak_mb": finished.peak / 1e6, "bytes_a_document": size / documents, "runs": rows[-1]["runs"],
        "segments": rows[-1]["segments"],
        "open_cold_seconds": opened[0]["process_seconds"] if opened else None,
        "open_warm_seconds": warm["joined_since"], "open_small_seconds": warm["small"], **found,
    }  # fmt: skip


def in_words(row: dict[str, Any]) -> str:
    """The summary for people."""
    lines = [
        f"{row['documents']:,} documents in {row['seconds']:,.0f} s ({row['rate']:,.0f}/s, "
        f"{row['cpu_micros']:.1f} µs of CPU each)",
        f"peak memory {row['peak_mb']:,.0f} MB; {row['bytes_a_document']:,.0f} bytes on disk a document; "
        f"{row['runs']} runs of {row['segments']} segments at the end",
        f"slowest batch {row['batch_ms']:,.0f} ms, slowest commit {row['commit_ms']:,.0f} ms",
        f"{row['missed']:,} of {row['true_pairs']:,} true pairs missed (both kept), {row['false_pairs']:,} reported "
        f"wrongly; {row['pairs_of_two_segments']:,} pairs of two segments of posts",
    ]
    if row["late_to_early"] is not None:
        lines.append(
            f"the first tenth {row['early_rate']:,.0f}/s, the last {row['late_rate']:,.0f}/s "
            f"({row['late_to_early']:.2f} times); the slowest report {row['slowest_window']:,.0f}/s"
        )
    if row["open_warm_seconds"] is not None:
        lines.append(
            f"a query, whole process: {row['open_cold_seconds']:.2f} s from the disk, "
            f"{row['open_warm_seconds']:.2f} s from the cache; "
            f"of an index of 1,000 documents {row['open_small_seconds']:.2f} s"
        )
    return "\n".join(f"- {line}" for line in lines)


def grow(
    source: Sequence[str],
    state: Path,
    pairs: Path,
    log: Path,
    given: argparse.Namespace,
    *,
    touched: bool = False,
) -> Finished:
    """A producer into the job, to the end. touched: the memory of all rings is taken at the start."""
    settings = TRUTHS | {"threshold": given.threshold} | pairs_of(given.settings)
    command = [sys.executable, "-m", "bench.growing", "--index", str(state), "--pairs", str(pairs)]
    command += ["--report", str(log), "--every", str(given.every), *(["--touch"] if touched else [])]
    command += ["--settings", shlex.join(f"{name}={value}" for name, value in settings.items())]
    log.unlink(missing_ok=True)
    with subprocess.Popen(source, stdout=subprocess.PIPE) as producer:
        finished = watch(command, every=0.5, source=producer.stdout, on_sample=Follower(log))
        assert producer.stdout is not None
        producer.stdout.close()  # a job that failed must not leave it waiting
    require_success(finished, "dedup")
    if producer.returncode:
        raise SystemExit(f"the producer failed with exit code {producer.returncode}; what it said stands above")
    return finished


@contextmanager
def small_index(posts: Path, given: argparse.Namespace) -> Iterator[Path]:
    """An index of the first 1,000 posts. Making it also compiles the kernels, if that has not been done before."""
    with tempfile.TemporaryDirectory(dir=given.work, prefix="small-") as folder:
        file, state = Path(folder, "posts.jsonl"), Path(folder, "state")
        with posts.open("rb") as lines:
            file.write_bytes(b"".join(islice(lines, 1000)))
        grow(["cat", str(file)], state, Path(folder, "pairs.jsonl"), Path(folder, "report.jsonl"), given)
        yield state


def _warm(opened: list[dict[str, Any]], name: str) -> float | None:
    found = [row["process_seconds"] for row in opened if row["index"] == name and row["cache"] == "warm"]
    return statistics.median(found) if found else None


def run(given: argparse.Namespace) -> None:
    where = report.environment()
    from_anywhere()
    posts = unpack(corpus("posts-120k"), given.data, given.work)
    state, pairs, log = (given.work / name for name in ("growth-state", "growth-pairs.jsonl", "growth-report.jsonl"))
    shutil.rmtree(state, ignore_errors=True)
    pairs.unlink(missing_ok=True)
    source = [sys.executable, "-m", "bench.edits", "--print", "--documents", str(given.documents)]
    source += ["--data", str(given.data), "--work", str(given.work)]
    with small_index(posts, given) as small:
        finished = grow(source, state, pairs, log, given)
        rows, size = read_rows(log), folder_bytes(state)
        opened = openings(state, given.openings, "joined_since") + openings(small, given.openings, "small")
    truth = read_truth(given.data / corpus("posts-40k").truth)
    known = known_ids(posts, corpus("posts-40k"))
    found = score_segments(read_pairs(pairs), truth, known, given.documents, given.threshold)
    total = summary(rows, finished, opened, size, found)
    if not given.keep:
        shutil.rmtree(state)
        pairs.unlink()

    step = max(1, len(rows) // 25)
    shown = [row for i, row in enumerate(rows) if i == 0 or i == len(rows) - 1 or (i + 1) % step == 0]
    print(f"\n{report.table(WINDOWS, shown)}\n\n{in_words(total)}")
    text = in_words(total) + "\n\n" + report.table(WINDOWS, shown, markdown=True)
    report.write(given.out, "growth", where, [*rows, *opened, total], text)
    if given.out is not None:
        growth_plot(rows, given.out)


def main() -> None:
    parser = report.parser("growth", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=5_000_000, help="how many; 1.24 kB each (%(default)s)")
    parser.add_argument("--every", type=int, default=1_000_000, help="documents of a report (%(default)s)")
    parser.add_argument("--threshold", type=float, default=0.8, help="Jaccard similarity (%(default)s)")
    parser.add_argument("--openings", type=int, default=6, help="queries of the finished index (%(default)s)")
    parser.add_argument("--settings", default="", help='more settings, for example "memtable_documents=200000"')
    parser.add_argument("--keep", action="store_true", help="keep the index and the pairs in the work folder")
    given = parser.parse_args()
    Settings(**TRUTHS | pairs_of(given.settings))  # an error is raised now
    run(given)


if __name__ == "__main__":
    main()
