"""Indexes and pipelines as a version has left them, with what it said to the documents that followed. Later versions go
on with them.

    PYTHONPATH=tests python -m support.frozen tests/frozen/0.2.0

Makes them anew: until the release of a version, whenever a format changes. After it they stay as they are.
"""

from __future__ import annotations

import argparse
import base64
import io
import re
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from stream_lsh import Settings
from support.jobs import OUTPUTS, run
from support.json_lines import write_lines
from support.measure_feeds import GIVEN, feed_of

FOLDER = Path(__file__).parents[1] / "frozen"
FIRST, ALL = 140, 220  # documents: what the version has read, and with those that follow
SMALL = {"memtable_documents": 16, "segment_documents": 60}  # several runs and segments
CHANGES = {"on_conflict": "update", "deleted_field": "deleted", "time_field": "ts"}
ALIKE = ("euclidean", "levenshtein")  # stored as others
INDEXES: dict[str, dict[str, Any]] = {
    **{name: given | CHANGES | {"window": "150s"} for name, given in GIVEN.items() if name not in ALIKE},
    "jaccard": {"shingles": "words:3", "keep": "longest", "match_within": ["lang"], **CHANGES},
    "shards": {"shingles": "words:3", "shards": 3, "decision_lag": 20, **CHANGES},
    "all": {"shingles": "words:3", "compare_with": "all", "threshold": 0.6, **CHANGES},
}
NO_INDEX = ("LOG", "LOG.old", "LOCK")  # what RocksDB writes and does not read


def packed(folder: Path) -> bytes:
    """The files of a folder as an archive, the same for the same files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name.partition(".old")[0] not in NO_INDEX:
                archive.add(path, str(path.relative_to(folder)))
    return out.getvalue()


def unpacked(archive: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:xz") as found:
        found.extractall(folder, filter="data")


def lines_of(folder: Path, output: str) -> bytes:
    """An output, without the folder in the paths of inputs."""
    return re.sub(rb'("input":")[^"]*/', rb"\1", (folder / output).read_bytes())


def index(name: str) -> bytes:
    """An archive: the folder of a job after the first documents, and `after` with its outputs after all of them."""
    measure = name if name in GIVEN else "containment"
    records = feed_of(measure, seed=7).history(ALL)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        feed, settings = folder / "feed.jsonl", Settings(**SMALL, **INDEXES[name])
        write_lines(feed, records[:FIRST])
        run(folder, [feed], settings)
        first = packed(folder)
        write_lines(feed, records)
        run(folder, [feed], settings)
        left = folder / "left"
        unpacked(first, left)
        shutil.copy(feed, left / "feed.jsonl")
        (left / "after").mkdir()
        for output in OUTPUTS:
            (left / "after" / output).write_bytes(lines_of(folder, output))
        return packed(left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("folder", type=Path, help="of the version")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in INDEXES:
        (folder / f"index-{name}.tar.xz").write_bytes(index(name))
    from kafka.simulation import test_frozen_pipelines as pipelines

    from support.simulation.runner import run as simulate

    for name in pipelines.PIPELINES:
        [found] = simulate(pipelines.left_behind.scenario, [0], {"name": name})  # type: ignore[attr-defined]
        assert found["error"] is None, found["error"]
        (folder / f"pipeline-{name}.tar.xz").write_bytes(base64.b64decode(found["value"]))


if __name__ == "__main__":
    main()
