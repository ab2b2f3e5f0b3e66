"""Throughput, memory and disk while an index grows to millions of documents, and the time to open it at the end.

The documents are the posts, edited as bench/edits.py says. The process is watched from outside: how far it has read its
input (Linux's /proc tells the position of an open file), its memory, the size of its state. At the end the pairs found
in each generation are compared with the truth, and the finished index is opened by a query, first with the files
dropped from the system's cache, then warm; the same query of an index of 1,000 documents tells what is start-up.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import report
from bench.corpora import corpus, known_ids, unpack
from bench.edits import EVERY, make
from bench.engine import COMMAND, comparison_options, own_rate, pairs_command, read_pairs, require_success
from bench.plots import growth_plot
from bench.process import Finished, Sample, folder_bytes, watch
from bench.scoring import Pair, Score, read_truth, score

EXAMPLE = "python -m bench.growth --documents 300000 --work made --out results"
POSTS = 120_000
EARLY = (100_000, 500_000)  # the documents that the end is compared with: behind the start-up, still a small index
LATE = 500_000
WINDOWS = {
    "documents": "documents", "rate": "documents/s", "resident_mb": "resident MB", "anonymous_mb": "own MB",
    "mapped_mb": "file-backed MB", "disk_mb": "state MB",
}  # fmt: skip


class Watcher:
    """Collects, beside the samples of the process, the size of its state; tells every 100,000th document."""

    def __init__(self, state: Path, bounds: NDArray[np.float64], counts: NDArray[np.float64]) -> None:
        self._state, self._bounds, self._counts = state, bounds, counts
        self._next = float(EVERY)
        self.disk: list[int] = []

    def __call__(self, sample: Sample) -> None:
        self.disk.append(folder_bytes(self._state))
        documents = float(np.interp(sample.position or 0, self._bounds, self._counts))
        if documents >= self._next:
            self._next += EVERY
            memory = (sample.resident or 0) / 1e6
            print(
                f"{documents:,.0f} documents after {sample.seconds:,.0f} s, {memory:,.0f} MB",
                file=sys.stderr,
                flush=True,
            )


def windows(
    samples: Sequence[Sample], disk: Sequence[int], bounds: NDArray[np.float64], counts: NDArray[np.float64], end: float
) -> list[dict[str, Any]]:
    """A row for every 100,000 documents: their throughput, and memory and disk at their end.

    Args:
        bounds, counts: after so many bytes of the input there have been so many documents.
        end: seconds until the process was over; the last documents are done by then.
    """
    pairs = [(sample, size) for sample, size in zip(samples, disk, strict=False) if sample.position is not None]
    seconds = np.array([0.0] + [sample.seconds for sample, _ in pairs])
    # The descriptor is closed before the last documents are done: positions only grow.
    done = np.maximum.accumulate(
        [0.0] + [float(np.interp(sample.position or 0, bounds, counts)) for sample, _ in pairs]
    )
    total = float(counts[-1])
    rows: list[dict[str, Any]] = []
    before = 0.0
    for goal in [*range(EVERY, int(total), EVERY), total]:
        at = end if goal == total else float(np.interp(goal, done, seconds))
        place = max(0, min(int(np.searchsorted(seconds, at)) - 1, len(pairs) - 1))
        sample, size = pairs[place]
        rows.append(
            {
                "kind": "window", "documents": int(goal), "seconds": at,
                "rate": (goal - (rows[-1]["documents"] if rows else 0)) / max(at - before, 1e-9),
                "resident_mb": _mb(sample.resident), "anonymous_mb": _mb(sample.anonymous),
                "mapped_mb": _mb(sample.mapped), "peak_mb": _mb(sample.peak), "disk_mb": size / 1e6,
            }
        )  # fmt: skip
        before = at
    return rows


def rate_between(rows: Sequence[dict[str, Any]], first: int, last: int) -> float | None:
    """Documents a second from document `first` to document `last`, None if there are no windows in between."""
    at = {0: 0.0} | {row["documents"]: row["seconds"] for row in rows}
    inside = sorted(documents for documents in at if first <= documents <= last)
    if len(inside) < 2:
        return None
    return float((inside[-1] - inside[0]) / max(at[inside[-1]] - at[inside[0]], 1e-9))


def score_generations(
    reported: Iterable[Pair], truth: dict[Pair, float], known: set[str], documents: int, threshold: float
) -> tuple[Score, int]:
    """The pairs inside the generations against the truth, and how many pairs are of two generations."""
    whole = [generation for generation in range(-(-documents // POSTS)) if generation * POSTS + len(known) <= documents]
    expected = {
        tuple(name + (f"~{generation}" if generation else "") for name in pair): similarity
        for generation in whole
        for pair, similarity in truth.items()
    }
    inside, crossing = [], 0
    for pair in reported:
        (one, first), (other, second) = ((name.partition("~")[0], name.partition("~")[2]) for name in pair)
        if first != second:
            crossing += 1
        elif one in known and other in known and int(first or 0) in whole:
            inside.append(pair)
    names = {name for pair in [*expected, *inside] for name in pair}
    return score(
        inside, {(min(pair), max(pair)): value for pair, value in expected.items()}, threshold, names
    ), crossing


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
        finished = watch([*COMMAND, "query", "a text that nobody wrote before", "--state", str(state)], every=0.02)
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
    rows: list[dict[str, Any]],
    finished: Finished,
    opened: list[dict[str, Any]],
    documents: int,
    size: int,
    found: Score,
    crossing: int,
) -> dict[str, Any]:
    """All figures of the run in one row."""
    early = late = None
    if documents >= EARLY[1] + LATE:  # in a shorter run the two would overlap
        early, late = rate_between(rows, *EARLY), rate_between(rows, documents - LATE, documents)
    warm = {name: _warm(opened, name) for name in ("grown", "small")}
    return {
        "kind": "summary", "documents": documents, "seconds": finished.seconds, "rate": documents / finished.seconds,
        "own_rate": own_rate(finished.errors), "early_rate": early, "late_rate": late,
        "fall": 1 - late / early if early and late else None,
        "slowest_window": min((row["rate"] for row in rows), default=None),
        "cpu_micros": 1e6 * finished.cpu_seconds / documents,
        "others": finished.others, "peak_mb": finished.peak / 1e6, "bytes_a_document": size / documents,
        "open_cold_seconds": opened[0]["process_seconds"] if opened else None,
        "open_warm_seconds": warm["grown"], "open_small_seconds": warm["small"],
        "recall": found.recall, "precision": found.precision, "true_pairs": found.true,
        "pairs_of_two_generations": crossing,
    }  # fmt: skip


def in_words(row: dict[str, Any]) -> str:
    """The summary for people."""
    lines = [
        f"{row['documents']:,} documents in {row['seconds']:,.0f} s ({row['rate']:,.0f}/s, "
        f"{row['cpu_micros']:.1f} µs of CPU each)",
        f"peak memory {row['peak_mb']:,.0f} MB; {row['bytes_a_document']:,.0f} bytes on disk a document",
        f"recall {row['recall']:.4f} and precision {row['precision']:.4f} against {row['true_pairs']:,} true pairs; "
        f"{row['pairs_of_two_generations']:,} pairs of two generations",
    ]
    if row["others"] is not None:
        lines[0] += f", {row['others']:.2f} cores busy with something else meanwhile"
    if row["fall"] is not None:
        change = f"{100 * row['fall']:.1f} % less" if row["fall"] >= 0 else f"{-100 * row['fall']:.1f} % more"
        lines.append(
            f"documents {EARLY[0]:,} to {EARLY[1]:,}: {row['early_rate']:,.0f}/s; the last {LATE:,}: "
            f"{row['late_rate']:,.0f}/s ({change}); slowest 100,000: {row['slowest_window']:,.0f}/s"
        )
    if row["open_warm_seconds"] is not None:
        lines.append(
            f"a query, whole process: {row['open_cold_seconds']:.2f} s from the disk, "
            f"{row['open_warm_seconds']:.2f} s from the cache; "
            f"of an index of 1,000 documents {row['open_small_seconds']:.2f} s"
        )
    return "\n".join(f"- {line}" for line in lines)


@contextmanager
def small_index(posts: Path, work: Path, options: list[str]) -> Iterator[Path]:
    """An index of the first 1,000 posts. Making it also compiles the kernels, if that has not been done before."""
    with tempfile.TemporaryDirectory(dir=work, prefix="small-") as folder:
        file, state = Path(folder) / "posts.jsonl", Path(folder) / "state"
        with posts.open("rb") as lines:
            file.write_bytes(b"".join(islice(lines, 1000)))
        require_success(watch(pairs_command(file, state, Path(folder) / "pairs.jsonl", options)), "pairs")
        yield state


def _warm(opened: list[dict[str, Any]], name: str) -> float | None:
    found = [row["process_seconds"] for row in opened if row["index"] == name and row["cache"] == "warm"]
    return statistics.median(found) if found else None


def _mb(value: int | None) -> float | None:
    return None if value is None else value / 1e6


def run(given: argparse.Namespace) -> None:
    where = report.environment()
    posts = unpack(corpus("posts-120k"), given.data, given.work)
    file = given.work / f"edited-{given.documents}.jsonl"
    index = make(posts, file, given.documents)
    offsets = [o for o in index["offsets"] if o < index["bytes"]]  # type: ignore[union-attr,operator]
    bounds = np.array([0, *offsets, index["bytes"]], np.float64)
    counts = np.array([0, *(EVERY * (i + 1) for i in range(len(offsets))), given.documents], np.float64)

    state, pairs = given.work / "growth-state", given.work / "growth-pairs.jsonl"
    shutil.rmtree(state, ignore_errors=True)
    pairs.unlink(missing_ok=True)
    options = comparison_options(given.threshold, ("title", "text")) + shlex.split(given.options)
    watcher = Watcher(state, bounds, counts)
    with small_index(posts, given.work, options) as small:
        finished = watch(pairs_command(file, state, pairs, options), every=given.every, reads=file, on_sample=watcher)
        require_success(finished, "pairs")
        size = folder_bytes(state)
        rows = windows(finished.samples, watcher.disk, bounds, counts, finished.seconds)
        opened = openings(state, given.openings, "grown") + openings(small, given.openings, "small")
    truth = read_truth(given.data / corpus("posts-40k").truth)
    known = known_ids(posts, corpus("posts-40k"))
    found, crossing = score_generations(read_pairs(pairs), truth, known, given.documents, given.threshold)
    total = summary(rows, finished, opened, given.documents, size, found, crossing)
    if not given.keep:
        shutil.rmtree(state)
        pairs.unlink()

    step = max(1, len(rows) // 25)
    shown = [row for i, row in enumerate(rows) if i == 0 or i == len(rows) - 1 or (i + 1) % step == 0]
    print(f"\n{report.table(WINDOWS, shown)}\n\n{in_words(total)}")
    report.write(
        given.out,
        "growth",
        where,
        [*rows, *opened, total],
        in_words(total) + "\n\n" + report.table(WINDOWS, shown, markdown=True),
    )
    if given.out is not None:
        growth_plot(rows, given.out)


def main() -> None:
    parser = report.parser("growth", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=5_000_000, help="how many; 1.24 kB each (%(default)s)")
    parser.add_argument("--threshold", type=float, default=0.8, help="Jaccard similarity (%(default)s)")
    parser.add_argument(
        "--every", type=float, default=1.0, help="seconds between two looks at the process (%(default)s)"
    )
    parser.add_argument("--openings", type=int, default=6, help="queries of the finished index (%(default)s)")
    parser.add_argument("--options", default="", help='more options for stream-lsh, for example "--shards 2"')
    parser.add_argument("--keep", action="store_true", help="keep the index and the pairs in the work folder")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
