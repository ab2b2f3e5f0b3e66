"""A process that is killed while it flushes and merges leaves an index that goes on as if it had not been."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.feeds import WORDS, changing, nasty
from support.indexes import once, opened
from support.long_form import LONG, rotating

from stream_lsh.index.postings.run import Run
from stream_lsh.settings.model import Settings

FEEDER = ("-m", "support.feeder")
SMALL = {"memtable_documents": 32, "segment_documents": 500, "max_bucket_rows": 8, "max_matches": 3}
DOCUMENTS, KILLS = (20_000, 20) if LONG else (4_000, 4)
LONG_CASES = {
    "unique": {},
    "updates": {"on_conflict": "update", "max_bucket_rows": 2},
    "unique, decided late": {"shards": 3, "decision_lag": 700},
    "any": {"compare_with": "all", "shards": 3},
}
CASES = [
    pytest.param({}, 800, 1, id="unique, short"),
    *rotating((pytest.param(more, DOCUMENTS, KILLS, id=name) for name, more in LONG_CASES.items()), 1),
]


def run(folder: Path, settings: dict[str, Any], documents: int, until: float | None) -> int:
    """Feed the index in a process, kill it after a share of the lines to come, and a moment; its exit code."""
    out, begun = folder / "out", folder / "begun"
    begun.unlink(missing_ok=True)
    command = [sys.executable, *FEEDER, folder / "index", json.dumps(settings), "5", str(documents), "60", out]
    with subprocess.Popen(command) as process:
        if until is not None:
            while not begun.exists() and process.poll() is None:
                time.sleep(0.001)
            size = out.stat().st_size if out.exists() else 0
            target = size + until * 100 * documents
            while process.poll() is None and (not out.exists() or out.stat().st_size < target):
                time.sleep(0.001)
            time.sleep(random.random() * 0.02)
            process.kill()
        return process.wait()


@pytest.mark.parametrize(("changes", "documents", "kills"), CASES)
def test_killed_at_random_moments(tmp_path: Path, changes: dict[str, Any], documents: int, kills: int) -> None:
    settings = {**SMALL, **changes}
    feed = (changing if "on_conflict" in changes else nasty)(5, documents, words=WORDS[:60])
    whole = once(feed, Settings(**{**settings, "memtable_documents": 65536}), tmp_path / "whole", 1000)
    codes = [run(tmp_path, settings, documents, random.random() / kills) for _ in range(kills)]
    assert -9 in codes
    assert run(tmp_path, settings, documents, None) == 0
    lines = (tmp_path / "out").read_text().splitlines()
    given = set()
    for line in lines:
        try:
            verdict = json.loads(line)
        except ValueError:  # the line at which it was killed, and what was written behind it
            continue
        assert verdict == whole[verdict["seq"]]
        given.add(verdict["seq"])
    assert len(given) > 0.9 * documents and len(lines) >= len(given)
    with opened(Settings(), tmp_path / "index", read_only=True) as index:
        assert index.store.named("feed") == {"next": documents}
        came = sum(verdict["kind"] not in ("rejected", "redelivered", "deleted") for verdict in whole)
        assert index.count == came - sum("replaces" in verdict for verdict in whole)
        (shard, *_) = index.shards
        assert len(shard.segments) > documents // 500 // 2
        for segment in shard.segments:
            for listed in segment.postings.runs:
                if listed.path is not None:
                    Run.open(listed.path, check=True)
    files = {path.name for path in (tmp_path / "index").rglob("*") if path.is_file()}
    assert not [name for name in files if name.endswith(".writing")]  # what was killed half way has been swept
