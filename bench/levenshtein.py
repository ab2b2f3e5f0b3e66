"""Short texts beside brute force with rapidfuzz: documents a second, what is found, what was not compared.

The texts are the titles of forum posts; the last one has all others before it. The engine takes them as a stream, with
an index on disk and default settings. rapidfuzz compares a sample of the titles with all of them (`process.cdist` with
the distance as `score_cutoff`, all cores); its documents a second are those of a stream that has reached this length.
Recall: of the sampled titles that have one within the distance among those that the engine kept before, those that the
engine dropped; precision: of those dropped, those that have one.

Then what is dense: titles of one template with a number in it, codes, one title over and over.
"""

from __future__ import annotations

import lzma
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from bench import report
from bench.process import folder_bytes
from stream_lsh import Deduplicator, Document, Settings, Verdict

EXAMPLE = "python -m bench.levenshtein --documents 20000 --out results"
QUERIES = 1000
COLUMNS = {
    "distance": "distance", "system": "system", "rate": "documents/s", "recall": "recall", "precision": "precision",
    "dropped": "dropped %", "not_compared": "documents not compared in full", "disk": "bytes/document on disk",
}  # fmt: skip
DENSE_COLUMNS = {
    "feed": "feed", "compare_with": "compare_with", "rate": "documents/s", "kept": "kept %",
    "not_compared": "not compared %",
}  # fmt: skip


def dense_feeds(documents: int, seed: int = 12) -> Iterator[tuple[str, list[str]]]:
    """Feeds in which everybody shares most of his pieces with everybody."""
    chance = random.Random(seed)
    made: dict[str, Callable[[int], str]] = {
        "one template, 8 digits": lambda i: f"Your invoice {chance.randrange(10**8):08d} of ACME Corp. is ready",
        "one template, counted": lambda i: f"Order {i} has shipped",
        "codes of 6 digits": lambda i: f"SKU-{chance.randrange(10**6):06d}",
        "one title": lambda i: "The same title again and again",
    }
    for name, text in made.items():
        yield name, [text(i) for i in range(documents)]


def taken(titles: list[str], settings: Settings) -> tuple[list[Verdict], float, float]:
    """Verdicts, seconds, bytes of a document on disk."""
    documents = [Document(number, title) for number, title in enumerate(titles)]
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "index"
        with Deduplicator(settings, state) as deduplicator:
            began = time.perf_counter()
            verdicts = list(deduplicator.process(documents))
            deduplicator.commit()
            seconds = time.perf_counter() - began
        return verdicts, seconds, folder_bytes(state) / len(titles)


def beside(titles: list[str], distance: int) -> Iterator[dict[str, Any]]:
    """The engine and brute force at a distance."""
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cdist

    verdicts, seconds, disk = taken(titles, Settings(measure="levenshtein", max_distance=distance))
    kept = np.array([verdict.kind == "unique" for verdict in verdicts])
    plain = [" ".join(title.lower().split()) for title in titles]
    sample = np.sort(np.random.default_rng(1).choice(len(titles), min(QUERIES, len(titles)), replace=False))
    began = time.perf_counter()
    apart = cdist([plain[i] for i in sample], plain, scorer=Levenshtein.distance, score_cutoff=distance,
                  dtype=np.uint8, workers=-1)  # fmt: skip
    brute = time.perf_counter() - began
    near = (apart <= distance) & kept & (np.arange(len(titles)) < sample[:, None])
    true, found = near.any(axis=1), ~kept[sample]
    yield {
        "distance": distance, "system": "stream-lsh", "rate": len(titles) / seconds,
        "recall": float((true & found).sum() / max(1, true.sum())),
        "precision": float((true & found).sum() / max(1, found.sum())),
        "dropped": float(100 * (1 - kept.mean())),
        "not_compared": sum(verdict.not_compared > 0 for verdict in verdicts),
        "disk": disk,
    }  # fmt: skip
    yield {"distance": distance, "system": "rapidfuzz, brute force", "rate": len(sample) / brute,
           "recall": 1.0, "precision": 1.0}  # fmt: skip


def titles_of(data: Path, documents: int) -> list[str]:
    """The first titles of the forum posts."""
    with lzma.open(data / "posts-120k.jsonl.xz") as lines:
        return [orjson.loads(line)["title"] for line in islice(lines, documents)]


def crowded(documents: int) -> Iterator[dict[str, Any]]:
    """The engine on dense feeds."""
    for name, feed in dense_feeds(documents):
        for compare_with in ("kept", "all"):
            verdicts, seconds, _ = taken(
                feed, Settings(measure="levenshtein", max_distance=3, compare_with=compare_with)
            )
            kept = sum(verdict.kind == "unique" for verdict in verdicts)
            cut = sum(verdict.not_compared > 0 for verdict in verdicts)
            yield {"feed": name, "compare_with": compare_with, "rate": len(feed) / seconds,
            "kept": 100 * kept / len(feed),
                   "not_compared": 100 * cut / len(feed)}  # fmt: skip


def main() -> None:
    parser = report.parser("levenshtein", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=120_000, help="titles, and of each dense feed (%(default)s)")
    parser.add_argument("--distances", default="1,2,3,5", help="comma list (%(default)s)")
    given = parser.parse_args()
    where = report.environment(("numpy", "numba", "rocksdict", "rapidfuzz"))
    titles = titles_of(given.data, given.documents)
    taken(titles[:100], Settings(measure="levenshtein", max_distance=3))  # compiling is not what is timed
    rows = [row for distance in given.distances.split(",") for row in beside(titles, int(distance))]
    dense, texts = list(crowded(given.documents)), list[str]()
    for title, columns, found in (("Titles", COLUMNS, rows), ("Dense feeds, distance 3", DENSE_COLUMNS, dense)):
        print(f"\n{title}\n{report.table(columns, found)}", flush=True)
        texts.append(f"{title}\n\n{report.table(columns, found, markdown=True)}")
    report.write(given.out, "levenshtein", where, [*rows, *dense], "\n\n".join(texts))


if __name__ == "__main__":
    main()
