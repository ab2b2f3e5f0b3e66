"""The memory of an index while documents are added in small commits, as `stream-lsh serve` does.

With small caches, which are full after a few thousand documents, only what grows with the index is left.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from bench.corpora import corpus, unpack
from bench.process import memory_of
from bench.serve import endless
from bench.serve_soak import varied
from bench.small_caches import shrink
from stream_lsh.documents.lines import parse_lines
from stream_lsh.embedded.engine import Engine
from stream_lsh.settings.model import Settings

EXAMPLE = "python -m bench.engine_memory --documents 1000000 --small-caches"
COLUMNS = {"documents": "documents", "seconds": "seconds", "own_mb": "memory without mapped files, MB"}


def run(given: argparse.Namespace) -> None:
    where = report.environment()
    feed = unpack(corpus(f"posts-{given.repeat or 120}k"), given.data, given.work)
    if given.small_caches:
        shrink()
    settings = Settings(text_field=("title", "text"), time_field="ts")
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=given.work, prefix="memory-") as folder:
        engine = Engine.open(settings, Path(folder) / "index", durable=False, groups=True)
        coming = endless(feed) if given.repeat else varied(endless(feed))
        begun, every = time.monotonic(), max(given.batch, given.documents // 20)
        for number in range(given.batch, given.documents + 1, given.batch):
            add(engine, list(islice(coming, given.batch)))
            if number % every < given.batch:
                own = memory_of(os.getpid())["anonymous"] / 1e6
                found.append({"documents": number, "seconds": time.monotonic() - begun, "own_mb": own})
                print(found[-1], flush=True)
        engine.close()
    print(f"\n{report.table(COLUMNS, found)}")
    report.write(given.out, "engine_memory", where, found, report.table(COLUMNS, found, markdown=True))


def add(engine: Engine, bodies: list[bytes]) -> None:
    """Add documents in one commit."""
    ends = np.cumsum([len(body) + 1 for body in bodies]) - 1
    starts = np.concatenate(([0], ends[:-1] + 1))
    engine.add(parse_lines(b"\n".join(bodies), starts, ends, engine.fields))
    engine.commit()


def main() -> None:
    parser = report.parser("engine_memory", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=1_000_000, help="in all (%(default)s)")
    parser.add_argument("--batch", type=int, default=100, help="documents of a commit (%(default)s)")
    parser.add_argument("--small-caches", action="store_true", help="of shingles, bitmaps and heads")
    parser.add_argument("--repeat", type=int, help="this many thousand posts again and again, with other ids")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
