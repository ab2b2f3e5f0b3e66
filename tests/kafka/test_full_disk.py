"""A full disk."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
from feeding import Record
from harness import Pipeline

pytestmark = pytest.mark.slow


def feed(first: int, n: int) -> list[Record]:
    """Documents of some 400 bytes, every second one a near-copy of the one before."""
    return [
        Record(i % 2, None, b'{"id": %d, "title": "t", "text": "%b end%d"}' % (i, text(i // 2), i % 2))
        for i in range(first, first + n)
    ]


def text(number: int) -> bytes:
    return b" ".join(b"%x" % (number * 7919 + k * 104729) for k in range(50))


def test_a_full_disk_ends_the_worker_and_the_next_one_goes_on(broker: Any, prefix: str, tmp_path: Path) -> None:
    """The limit on the size of files stands for the full disk: writing fails in the same way."""
    with Pipeline(broker.bootstrap, prefix, tmp_path, partitions=2) as pipeline:
        pipeline.worker(("sign", "sequence", "judge", "forward"))
        match = pipeline.worker(("match",))
        pipeline.produce(feed(0, 200))
        pipeline.finish()
        for pid in match.pids():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        pipeline.produce(feed(200, 2000))
        assert match.wait() == 5, match.said()
        assert "cannot be written" in match.said() and "free space" in match.said()
        assert "Traceback" not in match.said()
        match.start()
        pipeline.finish()
        assert len(pipeline.check().pairs) == 1100
