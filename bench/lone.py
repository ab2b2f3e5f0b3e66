"""What a call for a single document takes: `process` and `query`, on posts of 1.2 KB and on their first 60 characters.

The index is temporary, so that no time goes into waiting for the disk. Beside wall time stands the time of the
processor, which other work on the machine changes less. Last, documents a second of a list and of a generator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import orjson

from bench import report
from bench.corpora import corpus, unpack
from stream_lsh import Deduplicator, Document, Settings, prepare

EXAMPLE = "python -m bench.lone --out results"
SHORT = 60  # characters
CALLS = {"call": "call", "median": "median µs", "p90": "90 % µs", "processor": "processor µs"}
FEEDS = {"feed": "feed", "rate": "documents/s"}


def timed(call: str, documents: Sequence[Document], function: Callable[[Document], object]) -> dict[str, Any]:
    """A row: quantiles of the time of a call for each of these documents."""
    took = np.empty((len(documents), 2))
    for i, document in enumerate(documents):
        begin = time.perf_counter(), time.thread_time()
        function(document)
        took[i] = time.perf_counter() - begin[0], time.thread_time() - begin[1]
    wall, processor = (1e6 * took).T
    quantiles = zip(("median", "p90"), np.quantile(wall, [0.5, 0.9]).tolist(), strict=True)
    return {"kind": "call", "call": call, **dict(quantiles), "processor": float(np.median(processor))}


def rate(feed: str, deduplicator: Deduplicator, documents: Iterable[Document]) -> dict[str, Any]:
    """A row: documents a second."""
    begin = time.perf_counter()
    done = sum(1 for _ in deduplicator.process(documents))
    return {"kind": "feed", "feed": feed, "rate": done / (time.perf_counter() - begin)}


def main() -> None:
    parser = report.parser("lone", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=20_000, help="documents of each part (%(default)s)")
    parser.add_argument("--calls", type=int, default=2000, help="calls of each kind (%(default)s)")
    given = parser.parse_args()
    where, n, calls = report.environment(), given.documents, given.calls
    with unpack(corpus("posts-120k"), given.data, given.work).open("rb") as lines:
        posts = [orjson.loads(line) for line in islice(lines, 4 * n)]
    documents = [Document(post["id"], f"{post['title']} {post['text']}") for post in posts]
    short = [Document(f"short {document.id}", document.text[:SHORT]) for document in documents]
    prepare()
    with Deduplicator(Settings()) as deduplicator:

        def process(document: Document) -> object:
            return list(deduplicator.process([document]))

        def query(document: Document) -> object:
            return deduplicator.query(document.text)

        rate("a pass without a figure, which compiles what is not compiled", deduplicator, documents[:n])
        feeds = [
            rate("a list", deduplicator, documents[n : 2 * n]),
            rate("a generator", deduplicator, (document for document in documents[2 * n : 3 * n])),
        ]
        rows = []
        for name, some in (("1.2 KB", documents[3 * n :]), (f"{SHORT} characters", short)):
            rows.append(timed(f"`process`, {name}", some[:calls], process))
            rows.append(timed(f"`query`, {name}", some[calls : 2 * calls], query))
    print(f"{report.table(CALLS, rows)}\n\n{report.table(FEEDS, feeds)}")
    texts = [report.table(CALLS, rows, markdown=True), report.table(FEEDS, feeds, markdown=True)]
    report.write(given.out, "lone", where, [*rows, *feeds], "\n\n".join(texts))


if __name__ == "__main__":
    main()
