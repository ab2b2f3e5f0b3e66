"""Feeds in which copies crowd: how fast, how much is found, what is not compared; beside the peers.

The feeds are those of bench/feeds.py. The engine runs over all of each with its default settings, an index on disk and
the unique documents written; the peers over the first tenth, in memory, one thread; they too insert only what they
kept. Every run is a process of its own, one after the other, and is timed without its start-up. A planted pair is found
if it is listed, or if both documents of it were dropped. "Newest" are the planted pairs whose older document is one of
the 1,000 before the newer one.

Then: several `max_bucket_rows` and `max_candidates`; `against any` with the 10 best matches; and `against any` with
everything verified, in verified pairs a second.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bench import report
from bench.corpora import corpus, unpack
from bench.engine import ALL_PAIRS, from_anywhere, read_pairs
from bench.feeds import FEEDS, NEAREST, PLANTED, make
from bench.one import run
from bench.peers import disturbance, peer
from bench.process import Finished
from bench.systems import SYSTEMS

PEERS = ("rensa", "gaoya", "datasketch")
THRESHOLD = 0.8
GRID_FEEDS = ("near", "boilerplate")
BUCKET_SIZES, CANDIDATES = (32, 64, 128, 256), (16, 32, 64, 256)
QUARTERS = (0.25, 0.5, 0.75, 1.0)
ID = re.compile(rb'\{"id":"([^"]*)"').match
EXAMPLE = "python -m bench.dense --documents 20000 --feeds plain,near --out results"

SPEED = {
    "feed": "feed", "rate": "documents/s", "of_plain": "of plain", "fastest": "fastest peer", "times": "times it",
    **{name: name for name in PEERS},
}  # fmt: skip
ANSWERS = {
    "feed": "feed", "dropped": "dropped %", "planted": "planted", "recall": "recall", "newest": "of the newest",
    "not_compared": "not compared %", "peak_mb": "peak MB", **{f"at_{q:g}": f"MB at {100 * q:.0f} %" for q in QUARTERS},
    "disk": "bytes/document on disk", "cpu_micros": "CPU µs/document",
}  # fmt: skip
GRID = {
    "feed": "feed", "max_bucket_rows": "max_bucket_rows", "max_candidates": "max_candidates", "rate": "documents/s",
    "recall": "recall", "newest": "of the newest", "not_compared": "not compared %",
}  # fmt: skip
ANY = {"feed": "feed", "rate": "documents/s", "of_plain": "of plain", "not_compared": "not compared %"}
PAIRS = {"feed": "feed", "documents": "documents", "pairs": "pairs", "seconds": "s", "pairs_rate": "verified pairs/s"}

Planted = Sequence[tuple[str, str]]


def read_planted(path: Path) -> Planted:
    """(older, newer) of the planted pairs."""
    return [tuple(line.split("\t")[:2]) for line in path.read_text(encoding="utf-8").splitlines()]  # type: ignore[misc]


def kept_ids(unique: Path) -> set[str]:
    """The ids in the output of unique documents."""
    with unique.open("rb") as lines:
        return {found[1].decode() for line in lines if (found := ID(line)) is not None}


def near(pair: tuple[str, str]) -> bool:
    """Whether the older of a planted pair is one of the newest documents; ids end with the documents' numbers."""
    older, newer = (int(name.rpartition("-")[2]) for name in pair)
    return newer - older <= NEAREST


def recalls(planted: Planted, listed: Iterable[tuple[str, str]], kept: set[str]) -> dict[str, float | None]:
    """Share of the planted pairs that were found: of all, and of those with a partner among the newest."""
    pairs = set(listed)

    def share(wanted: Planted) -> float | None:
        found = sum(pair in pairs or not kept.intersection(pair) for pair in wanted)
        return found / len(wanted) if wanted else None

    return {"recall": share(planted), "newest": share([pair for pair in planted if near(pair)])}


def at_quarters(finished: Finished, size: int) -> dict[str, float | None]:
    """Resident megabytes when the process had read so much of its input."""
    found: dict[str, float | None] = {}
    for quarter in QUARTERS:
        reached = [s for s in finished.samples if s.position is not None and s.position >= quarter * size]
        seen = reached or finished.samples[-1:]  # the file is closed before the last documents are done
        found[f"at_{quarter:g}"] = seen[0].resident / 1e6 if seen and seen[0].resident else None
    return found


def ours(file: Path, planted: Planted, work: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """One run of the engine: its figures."""
    with tempfile.TemporaryDirectory(dir=work, prefix="dense-") as folder:
        unique, pairs = Path(folder, "unique.jsonl"), Path(folder, "pairs.jsonl")
        said, finished = run(file, settings, Path(folder), {"unique": unique} | ({"pairs": pairs} if planted else {}))
        found = recalls(planted, read_pairs(pairs), kept_ids(unique)) if planted else {}
    n = said["documents"]
    return {
        "documents": n, "rate": n / said["seconds"], "seconds": said["seconds"],
        "dropped": 100 * (said["near_duplicates"] + said["exact_duplicates"]) / n,
        "not_compared": 100 * said["not_compared"] / n, "pairs": said["pairs"], "planted": len(planted) or None,
        **found, "peak_mb": said["peak"] / 1e6, **at_quarters(finished, file.stat().st_size),
        "disk": said["disk"] / n, "cpu_micros": 1e6 * finished.cpu_seconds / n, "others": finished.others,
    }  # fmt: skip


def best_of(rounds: int, file: Path, planted: Planted, work: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The median of some runs, by its speed; the answers are the same in all."""
    rows = [ours(file, planted, work, settings) for _ in range(rounds)]
    return sorted(rows, key=lambda row: row["rate"])[(rounds - 1) // 2]


def first(file: Path, documents: int, work: Path) -> Path:
    """The first documents of a file, as a file, kept."""
    target = work / f"{file.stem}-first-{documents}.jsonl"
    if not target.exists():
        unfinished = target.with_suffix(".part")
        with file.open("rb") as lines, unfinished.open("wb") as out:
            out.writelines(islice(lines, documents))
        unfinished.replace(target)
    return target


def tell(what: str, row: Mapping[str, Any]) -> None:
    """A line of progress."""
    print(f"{what}: {row['rate']:,.0f} documents/s{disturbance(row['others'])}", file=sys.stderr, flush=True)


class Bench:
    """The options, the feeds that are made, and the rows so far."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.work: Path = given.work
        self.posts = unpack(corpus("posts-120k"), given.data, given.work)
        self.rows: list[dict[str, Any]] = []

    def feed(self, name: str, documents: int | None = None) -> tuple[Path, Planted]:
        """A feed, or so many documents of its beginning, and what is planted in it."""
        file, truth = make(name, self.posts, self.given.documents, self.work)
        planted = read_planted(truth) if name in PLANTED else []
        if documents is None or documents >= self.given.documents:
            return file, planted
        inside = [pair for pair in planted if int(pair[1].rpartition("-")[2]) < documents]
        return first(file, documents, self.work), inside

    def take(self, kind: str, name: str, row: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Keep a row."""
        self.rows.append({"kind": kind, "feed": name, **more, **row})
        tell(f"{kind} {name} {more or ''}".strip(), row)
        return self.rows[-1]

    def speed(self) -> Iterator[dict[str, Any]]:
        """Default settings beside the peers, a row a feed."""
        for name in self.given.feeds:
            row = self.take("feed", name, best_of(self.given.rounds, *self.feed(name), self.work, {}))
            rates = {}
            for system in self.given.peers:
                file, _ = self.feed(name, self.given.peer_documents)
                with tempfile.TemporaryDirectory(dir=self.work, prefix="peer-") as folder:
                    found = peer(system, file, Path(folder), ("text",), THRESHOLD, unique=True)
                found["pairs"] = len(found["pairs"])
                rates[system] = self.take("peer", name, found, system=system)["rate"]
            if rates:
                fastest = max(rates, key=lambda system: rates[system])
                row |= {**rates, "fastest": fastest, "times": row["rate"] / rates[fastest]}
            yield row

    def grid(self) -> Iterator[dict[str, Any]]:
        """Speed, recall and what is not compared, for several settings."""
        for name in (name for name in GRID_FEEDS if name in self.given.feeds):
            for max_bucket_rows in self.given.bucket_sizes:
                for candidates in self.given.max_candidates:
                    given = {"max_bucket_rows": max_bucket_rows, "max_candidates": candidates}
                    row = ours(*self.feed(name, self.given.grid_documents), self.work, given)
                    yield self.take("grid", name, row, **given)

    def against_any(self) -> Iterator[dict[str, Any]]:
        """Compared with every earlier document; the 10 best matches are listed."""
        for name in self.given.feeds:
            row = ours(*self.feed(name), self.work, {"compare_with": "all", "max_matches": 10})
            yield self.take("all", name, row)

    def everything(self) -> Iterator[dict[str, Any]]:
        """All pairs of a family, verified."""
        file, _ = self.feed("template", self.given.pair_documents)
        row = ours(file, [], self.work, ALL_PAIRS)
        yield self.take("all pairs", "template", row | {"pairs_rate": row["pairs"] / row["seconds"]})


def of_plain(rows: Sequence[dict[str, Any]], plain: float | None) -> None:
    """Beside each row's speed, that of the plain feed as the measure."""
    for row in rows:
        row["of_plain"] = row["rate"] / plain if plain else None


def measure(given: argparse.Namespace) -> None:
    where = report.environment(("datasketch", "rensa", "gaoya", "numpy", "numba", "rocksdict"))
    given.work.mkdir(parents=True, exist_ok=True)
    from_anywhere()
    bench = Bench(given)
    texts: list[str] = []

    def show(title: str, rows: Sequence[dict[str, Any]], *tables: Mapping[str, str]) -> None:
        for columns in tables if rows else ():
            print(f"\n{title}\n{report.table(columns, rows)}", flush=True)
            texts.append(f"{title}\n\n{report.table(columns, rows, markdown=True)}")
        report.write(given.out, "dense", where, bench.rows, "\n\n".join(texts))  # after each: it may be stopped

    # Compile the kernels, as the first start of a user does it once.
    for settings in ({}, ALL_PAIRS):
        ours(bench.feed(given.feeds[0], 1000)[0], [], given.work, settings)
    rows = list(bench.speed())
    plain = next((row["rate"] for row in rows if row["feed"] == "plain"), None)
    of_plain(rows, plain)
    title = f"{given.documents:,} documents of each feed, default settings"
    show(f"{title}; the peers on the first {given.peer_documents:,}", rows, SPEED)
    show(title, rows, ANSWERS)
    if given.any:
        rows = list(bench.against_any())
        of_plain(rows, plain)
        show(f"{given.documents:,} documents of each feed, against any, 10 matches", rows, ANY)
        show("against any, everything verified", list(bench.everything()), PAIRS)
    if given.grid:
        show(f"{given.grid_documents:,} documents, default settings but for these", list(bench.grid()), GRID)


def numbers(text: str) -> list[int]:
    """A comma list of numbers."""
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = report.parser("dense", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=400_000, help="of each feed (%(default)s)")
    parser.add_argument("--feeds", default=",".join(FEEDS), help="comma list (%(default)s)")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"comma list of {', '.join(SYSTEMS)} (%(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="the engine alone")
    parser.add_argument("--peer-documents", type=int, help="documents for the peers (a tenth)")
    parser.add_argument("--rounds", type=int, default=1, help="runs of the engine with default settings (%(default)s)")
    parser.add_argument("--no-any", dest="all", action="store_false", help="leave out `against any`")
    parser.add_argument("--no-grid", dest="grid", action="store_false", help="leave out the grid of settings")
    parser.add_argument("--grid-documents", type=int, help="documents for the grid (a quarter)")
    parser.add_argument("--bucket-sizes", type=numbers, default=BUCKET_SIZES, help=f"of the grid {BUCKET_SIZES}")
    parser.add_argument("--max-candidates", type=numbers, default=CANDIDATES, help=f"of the grid {CANDIDATES}")
    parser.add_argument("--pair-documents", type=int, default=4000, help="documents for all pairs (%(default)s)")
    given = parser.parse_args()
    given.feeds = given.feeds.split(",")
    given.peers = [] if given.no_peers else given.peers.split(",")
    given.peer_documents = given.peer_documents or max(1, given.documents // 10)
    given.grid_documents = given.grid_documents or max(1, given.documents // 4)
    for name in [*given.feeds, *given.peers]:
        if name not in FEEDS and name not in SYSTEMS:
            parser.error(f"there is no feed or system {name!r}")
    measure(given)


if __name__ == "__main__":
    main()
