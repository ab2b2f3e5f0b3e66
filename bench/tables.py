"""Columns and Arrow tables in Python, beside single documents: documents a second of `process`, `process_batch` and
`process_arrow`, and of the command line on JSON lines and on Parquet.

The calls take turns in one run, each on a new temporary index that has half of the posts, and get the other half, with
a commit at the end. The time of the processor stands beside wall time, because other work on the machine changes it
less.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet

from bench import report
from bench.corpora import corpus, unpack
from stream_lsh import Deduplicator, Document, Settings, prepare
from stream_lsh.embedded.job import Job

EXAMPLE = "python -m bench.tables --rounds 5 --out results"
COLUMNS = {
    "call": "call", "rate": "documents/s", "ratio": "times the first", "processor": "processor µs/document",
    "processor_ratio": "processor, first by this",
}  # fmt: skip


def timed(work: Callable[[], object], documents: int) -> tuple[float, float]:
    """Seconds of wall time and of the processor for a document."""
    begin = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - begin[0]) / documents, (time.process_time() - begin[1]) / documents


def rows_of(times: dict[str, list[tuple[float, float]]]) -> list[dict[str, Any]]:
    """A row for each call, from the medians of its rounds; ratios with the first call."""
    rows: list[dict[str, Any]] = []
    for call, taken in times.items():
        wall, processor = (statistics.median(side) for side in zip(*taken, strict=True))
        first = rows[0] if rows else {"rate": 1 / wall, "processor": 1e6 * processor}
        rows.append(
            {
                "kind": "tables", "call": call, "rate": 1 / wall, "ratio": 1 / wall / first["rate"],
                "processor": 1e6 * processor, "processor_ratio": first["processor"] / (1e6 * processor),
            }
        )  # fmt: skip
    return rows


def main() -> None:
    parser = report.parser("tables", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=40_000, help="posts, half of them timed (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each call (%(default)s)")
    given = parser.parse_args()
    where, n = report.environment(("numpy", "numba", "pyarrow")), given.documents // 2
    with unpack(corpus("posts-120k"), given.data, given.work).open("rb") as lines:
        posts = [orjson.loads(line) for line in islice(lines, 2 * n)]
    documents = [Document(str(post["id"]), f"{post['title']} {post['text']}") for post in posts]
    ids, texts = [document.id for document in documents], [document.text for document in documents]
    table = pa.table({"id": ids, "text": texts})
    pyarrow.parquet.write_table(table, given.work / "tables.parquet", compression="zstd")
    with (given.work / "tables.jsonl").open("wb") as lines:
        lines.writelines(orjson.dumps(row) + b"\n" for row in table.to_pylist())
    prepare()
    calls: dict[str, Callable[[Deduplicator], object]] = {
        "`process`": lambda one: list(one.process(documents[n:])),
        "`process_batch`": lambda one: one.process_batch(ids[n:], texts[n:]),
        "`process_arrow`": lambda one: one.process_arrow(table[n:]),
    }
    times: dict[str, list[tuple[float, float]]] = {call: [] for call in calls}
    files: dict[str, list[tuple[float, float]]] = {"`dedup`, JSON lines": [], "`dedup`, Parquet": []}
    for number in range(given.rounds + 1):  # the first compiles what is not compiled, and does not count
        for call, work in calls.items():
            with Deduplicator() as deduplicator:
                deduplicator.process_arrow(table[:n])
                taken = timed(lambda work=work, one=deduplicator: (work(one), one.commit()), n)  # type: ignore[misc]
            times[call] += [taken] if number else []
        for call, suffix in zip(files, ("jsonl", "parquet"), strict=True):
            paths = {"unique": str(given.work / f"tables-unique.{suffix}")}
            taken = timed(Job(Settings(), [str(given.work / f"tables.{suffix}")], paths).run, 2 * n)
            files[call] += [taken] if number else []
    rows = [*rows_of(times), *rows_of(files)]
    print(report.table(COLUMNS, rows))
    report.write(given.out, "tables", where, rows, report.table(COLUMNS, rows, markdown=True))


if __name__ == "__main__":
    main()
