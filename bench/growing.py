"""The process that grows in bench/growth.py: `producer | python -m bench.growing --index INDEX --report FILE`.

It is the job of `stream-lsh dedup -`, with a clock around each batch and each commit. After every so many documents it
writes a line of JSON: how fast they were, memory, disk, the slowest batch and commit among them, runs and segments.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import orjson

from bench.one import pairs_of
from bench.process import folder_bytes, memory_of
from bench.stages import replaced
from stream_lsh.embedded.job import Job
from stream_lsh.settings.model import Settings

JOB, INDEX = "stream_lsh.embedded.job", "stream_lsh.index.index"


def touch(index: Any) -> None:
    """Fill the rings, which have their size from the start and take memory as they fill: what grows is not they."""
    for shard in index.shards:
        for ring in (shard.rows.ring, shard.sets.ring, shard.sets.bits):
            ring.fill(0)


class Reporter:
    """Times batches (matching, verdicts, outputs, the pause that merges ask for) and commits; writes the lines."""

    def __init__(self, out: IO[bytes], every: int, state: Path, *, touched: bool = False) -> None:
        self._out, self._every, self._state, self._touched = out, every, state, touched
        self._index: Any = None
        self._started = self._since = self._reached = 0.0
        self._documents = self._reported = 0
        self._batch = self._commit = 0.0

    def batch(self, take: Callable[..., None]) -> Callable[..., None]:
        """`_Run._take` with a clock."""

        def clocked(job: Any, source: Any, batch: Any, signed: Any) -> None:
            start = time.perf_counter()
            if not self._started:  # the producer is up
                self._started = self._since = start
                self._index = job._index
                if self._touched:
                    touch(self._index)
            take(job, source, batch, signed)
            self._reached = time.perf_counter()
            self._batch = max(self._batch, self._reached - start)
            self._documents += len(batch)
            if self._documents - self._reported >= self._every:
                self.tell()

        return clocked

    def commit(self, commit: Callable[..., None]) -> Callable[..., None]:
        """`Index.commit` with a clock."""

        def clocked(*arguments: Any, **named: Any) -> None:
            start = time.perf_counter()
            commit(*arguments, **named)
            self._commit = max(self._commit, time.perf_counter() - start)

        return clocked

    def tell(self) -> None:
        """Write a line, unless nothing has come since the last one. Up to the last batch: the end of the pipe, the
        last commit and closing are no speed."""
        now, new = self._reached, self._documents - self._reported
        if not new:
            return
        segments = [segment for shard in self._index.shards for segment in shard.segments]
        memory = {f"{name}_mb": size / 1e6 for name, size in memory_of(os.getpid()).items()}
        disk = folder_bytes(self._state)
        row = {
            "kind": "window", "documents": self._documents, "seconds": now - self._started,
            "rate": new / max(now - self._since, 1e-9), **memory, "disk_mb": disk / 1e6,
            "disk_a_document": disk / self._documents, "batch_ms": 1000 * self._batch, "commit_ms": 1000 * self._commit,
            "runs": sum(len(segment.postings.runs) for segment in segments), "segments": len(segments),
        }  # fmt: skip
        self._out.write(orjson.dumps(row) + b"\n")
        self._out.flush()
        self._reported, self._since = self._documents, time.perf_counter()
        self._batch = self._commit = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.growing", description="Run the job over standard input and report; see bench/growth.py.",
        epilog="example: python -m bench.edits --print | python -m bench.growing --index index --report report.jsonl",
    )  # fmt: skip
    parser.add_argument("--index", type=Path, required=True, help="folder of the index")
    parser.add_argument("--pairs", type=Path, required=True, help="where the pairs go; the unique documents go nowhere")
    parser.add_argument("--report", type=Path, required=True, help="where the lines go")
    parser.add_argument("--every", type=int, default=1_000_000, help="documents of a line (%(default)s)")
    parser.add_argument("--touch", action="store_true", help="take the memory of all rings at the start")
    parser.add_argument("--settings", default="", help="name=value, with blanks between them")
    given = parser.parse_args()
    settings = Settings(**pairs_of(given.settings))  # type: ignore[arg-type]
    job = Job(settings, ["-"], {"unique": os.devnull, "pairs": str(given.pairs)}, given.index, overwrite=True)
    with given.report.open("wb") as out, ExitStack() as stack:
        reporter = Reporter(out, given.every, given.index, touched=given.touch)
        replaced(stack, JOB, "_Run._take", reporter.batch)
        replaced(stack, INDEX, "Index.commit", reporter.commit)
        job.run()
        reporter.tell()


if __name__ == "__main__":
    main()
