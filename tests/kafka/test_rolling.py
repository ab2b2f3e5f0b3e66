"""Stopping, restarting one after the other, and what is refused because it is of another version or other settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.kafka.chaos import documents
from support.kafka.feeding import Feed, records_of
from support.kafka.harness import Pipeline, until

from stream_lsh.kafka.settings import ROLES

pytestmark = pytest.mark.long


@pytest.mark.first
def test_a_rolling_restart_under_load(broker: Any, prefix: str, shared_data: Path, tmp_path: Path) -> None:
    """Every worker twice: it drains, ends with code 0 within the time for that, and is out of its groups."""
    records = records_of(list(documents(shared_data, 2000, 2)), 4, 2)
    with Pipeline(broker.bootstrap, prefix, tmp_path, partitions=4, shards=2, session_timeout_ms=30_000) as pipeline:
        workers = [pipeline.worker(ROLES, processes) for processes in ("one", "groups", "one")]
        feed = Feed(broker.bootstrap, pipeline.topics.documents, records, rate=125)
        feed.start()
        for number, worker in enumerate([*workers, *workers]):
            pipeline.wait_for(len(records) * (number + 1) // 12)
            worker.terminate()
            assert worker.wait() == 0, worker.said()
            assert "did not finish" not in worker.said(10**7) and "did not stop" not in worker.said(10**7)
            worker.start()
        feed.end()
        pipeline.finish()
        for worker in workers:
            worker.terminate()
        assert [worker.wait() for worker in workers] == [0, 0, 0], pipeline.report()
        # Their sessions would last longer: they have left.
        until(lambda: {role: pipeline.members(role) for role in ROLES} == dict.fromkeys(ROLES, 0), 20)
        pipeline.check()
