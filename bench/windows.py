"""Forgetting: ten windows of posts, one after the other, into an index with a window, and what stays of them.

The documents are the posts, edited as bench/edits.py says, two windows of posts to a segment of the edit, one every
second: so a window has as many documents as seconds. After two segments all texts come again, under other ids: if
anything older than the window were seen, nearly all would be duplicates. A process of its own writes them into the
pipe; another one (bench/growing.py) runs the job and reports memory, disk and the slowest batch and commit ten times a
window. The rings have all their memory from the start. Of each window the peaks are shown, beside those of the second
one, which is the first to forget. At the end the pairs are looked at by stream time, as the rule has it
(`index/segments/stream_time`): how many are older than the window, and how many
true pairs inside it were missed (both documents were kept).
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from bench import report
from bench.corpora import corpus, unpack
from bench.edits import COUNTED, DENSITY, Template, blocks, frequent_words, template
from bench.engine import from_anywhere
from bench.growth import grow, read_rows
from bench.one import pairs_of
from bench.process import folder_bytes
from bench.scoring import read_truth
from stream_lsh.index.segments.stream_time import StreamTime
from stream_lsh.settings.model import Settings

EXAMPLE = "python -m bench.windows --window-documents 20000 --out results"
START, SECOND = 1_700_000_000_000, 1000
REPORTS = 10  # of a window
SECOND_WINDOW = 1
AGAIN = 2  # segments of the edit after which all texts come again: four windows later
WINDOWS = {
    "window": "window", "rate": "documents/s", "to_second": "of the 2nd", "disk_mb": "peak MB on disk",
    "disk_to_second": "of the 2nd ", "resident_mb": "peak resident MB", "memory_to_second": "of the 2nd  ",
    "batch_ms": "slowest batch ms", "commit_ms": "slowest commit ms", "segments": "segments",
}  # fmt: skip


def dated(posts: Path, window: int) -> Template:
    """Two windows of posts, one every second."""
    with posts.open("rb") as lines:
        frequent = frequent_words(islice(lines, COUNTED))
    with posts.open("rb") as lines:
        made = template(islice(lines, 2 * window), frequent)
    return dataclasses.replace(made, times=START + SECOND * DENSITY * np.arange(len(made)))


def stream_times(made: Template, documents: int) -> NDArray[np.int64]:
    """Stream times of the feed: numbers are places in it."""
    segments = range(-(-documents // len(made)))
    return StreamTime().advance(np.concatenate([made.times_of(g) for g in segments])[:documents])


def score(
    pairs: Iterable[tuple[int, int]], truth: Iterable[tuple[int, int]], log: NDArray[np.int64], size: int, window: int
) -> dict[str, int]:
    """Reported pairs and the true ones of each `size` documents, both as (older, newer) numbers, by stream times.

    Returns:
        "pairs", how many of them are "too_old"; "true_pairs" inside the window, and how many are "missed": neither of
        their documents was dropped.
    """
    reported = list(pairs)
    dropped = {newer for _, newer in reported}
    first = [first for first in range(0, len(log), size) if first + size <= len(log)]
    true = [(older + at, newer + at) for at in first for older, newer in truth]
    inside = [pair for pair in true if log[pair[1]] - log[pair[0]] <= window]
    return {
        "pairs": len(reported), "too_old": sum(int(log[newer] - log[older]) > window for older, newer in reported),
        "true_pairs": len(inside), "missed": sum(not dropped.intersection(pair) for pair in inside),
    }  # fmt: skip


def by_window(rows: Sequence[dict[str, Any]], window: int) -> list[dict[str, Any]]:
    """A row for each window that is whole: documents/s, peaks and slowest steps; and beside those of the second."""
    out: list[dict[str, Any]] = []
    begun = 0.0
    for number in range(rows[-1]["documents"] // window):
        mine = [row for row in rows if number * window < row["documents"] <= (number + 1) * window]
        peaks = {name: max(row[name] for row in mine) for name in ("disk_mb", "resident_mb", "batch_ms", "commit_ms")}
        seconds, begun = mine[-1]["seconds"] - begun, mine[-1]["seconds"]
        last = {"segments": mine[-1]["segments"]}
        out.append({"kind": "window", "window": number + 1, "rate": window / seconds, **peaks, **last})
    ratios = {"to_second": "rate", "disk_to_second": "disk_mb", "memory_to_second": "resident_mb"}
    for row in out[SECOND_WINDOW:]:
        row |= {name: row[of] / out[SECOND_WINDOW][of] for name, of in ratios.items()}
    return out


def in_words(row: dict[str, Any]) -> str:
    """The result for people."""
    return (
        f"- {row['documents']:,} documents of ten windows in {row['seconds']:,.0f} s; {row['bytes'] / 1e6:,.1f} MB on "
        f"disk at the end; peak memory {row['peak_mb']:,.0f} MB\n"
        f"- {row['too_old']:,} of {row['pairs']:,} pairs are older than the window; {row['missed']:,} of "
        f"{row['true_pairs']:,} true pairs inside it were missed"
    )


def run(given: argparse.Namespace) -> None:
    where = report.environment()
    from_anywhere()
    posts, window = unpack(corpus("posts-120k"), given.data, given.work), given.window_documents
    documents = 10 * window
    state, pairs, log = (given.work / f"windows-{name}" for name in ("state", "pairs.jsonl", "report.jsonl"))
    shutil.rmtree(state, ignore_errors=True)
    pairs.unlink(missing_ok=True)
    source = [sys.executable, "-m", "bench.windows", "--print", "--window-documents", str(window)]
    source += ["--data", str(given.data), "--work", str(given.work)]
    given.every = window // REPORTS
    given.settings = f"{given.settings} window={window}s time_field=ts"
    finished = grow(source, state, pairs, log, given, touched=True)

    made = dated(posts, window)
    with posts.open("rb") as lines:
        places = {orjson.loads(line)["id"]: place for place, line in enumerate(islice(lines, len(made)))}
    true = [
        (min(places[one], places[other]), max(places[one], places[other]))
        for (one, other), similarity in read_truth(given.data / corpus("posts-40k").truth).items()
        if similarity >= given.threshold and one in places and other in places
    ]
    with pairs.open("rb") as lines:
        reported = [(pair["older_seq"], pair["newer_seq"]) for pair in map(orjson.loads, lines)]
    found = score(reported, true, stream_times(made, documents), len(made), SECOND * window)
    rows = read_rows(log)
    shown = by_window(rows, window)
    total = {
        "kind": "summary", "documents": documents, "seconds": rows[-1]["seconds"], "bytes": folder_bytes(state),
        "peak_mb": finished.peak / 1e6, **found,
    }  # fmt: skip
    print(f"\n{report.table(WINDOWS, shown)}\n\n{in_words(total)}")
    text = in_words(total) + "\n\n" + report.table(WINDOWS, shown, markdown=True)
    report.write(given.out, "windows", where, [*shown, total], text)
    if not given.keep:
        shutil.rmtree(state)
        pairs.unlink()


def main() -> None:
    parser = report.parser("windows", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--window-documents", type=int, default=60_000, help="of a window, at most 60000 (%(default)s)")
    parser.add_argument("--threshold", type=float, default=0.8, help="Jaccard similarity (%(default)s)")
    parser.add_argument("--settings", default="", help='more settings, for example "memtable_documents=16384"')
    parser.add_argument("--keep", action="store_true", help="keep the index and the pairs in the work folder")
    parser.add_argument("--print", action="store_true", help="write the documents to standard output, for a pipe")
    given = parser.parse_args()
    if given.print:
        made = dated(unpack(corpus("posts-120k"), given.data, given.work), given.window_documents)
        for data, _ in blocks(made, 10 * given.window_documents, again=AGAIN):
            sys.stdout.buffer.write(data)
        return
    Settings(**pairs_of(given.settings))  # type: ignore[arg-type]  # an error is raised now
    run(given)


if __name__ == "__main__":
    main()
