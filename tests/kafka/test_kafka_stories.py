"""Stories on Kafka whose shard is erased from: how rare words are is in what its changelog begins with."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.kafka import plain
from support.kafka.harness import Pipeline, until
from support.kafka.match_play import log_ends
from support.kafka.oracle import json_of

pytestmark = pytest.mark.long

FIRST, MORE = 1500, 600
OTHERS = (("sign", "sequence", "judge", "forward"), "one")


def test_whoever_begins_with_a_cleaned_changelog_says_the_same(broker: Any, prefix: str, tmp_path: Path) -> None:
    """One without a disk after a kill; one that goes on with its disk after a kill; one that takes over without any."""
    feed = plain.history(FIRST + 3 * MORE, 2, 5)
    with Pipeline(
        broker.bootstrap, prefix, tmp_path, partitions=2, likeness="stories", erase_hours=0, on_same_id="update",
        deleted_field="deleted", key_is_id="string", frame_documents=20, decided_after=100, memory_documents=300,
        generation_documents=500, text_field=("text",), session_timeout_ms=10_000,
    ) as pipeline:  # fmt: skip
        pipeline.worker(*OTHERS, name="others")
        first = pipeline.worker(("match",), name="first")

        def begins() -> int:
            [(begin, _)] = pipeline.run(log_ends(pipeline.settings, pipeline.topics.changelog, 1))
            return begin

        assert pipeline.produce(feed[:FIRST]) == FIRST
        pipeline.finish()
        until(lambda: begins() > 0, why="the changelog is not cleaned")
        first.kill()
        shutil.rmtree(pipeline.data(first))
        begun = begins()
        second = pipeline.worker(("match",), name="second")
        pipeline.produce(feed[FIRST : FIRST + MORE])
        pipeline.finish()
        until(lambda: begins() > begun, why="the changelog is not cleaned again")
        second.kill()
        pipeline.produce(feed[FIRST + MORE : FIRST + 2 * MORE])
        second.start()
        pipeline.finish()
        third = pipeline.worker(("match",), name="third")
        second.terminate()
        assert second.wait() == 0, pipeline.report()
        pipeline.produce(feed[FIRST + 2 * MORE :])
        pipeline.finish()
        assert "knows nothing of" not in third.said(10**7) + second.said(10**7)
        found = pipeline.check()
    assert len(found.documents) == len(feed)
    verdicts = [json_of(record.value) for record in found.verdicts]
    kinds = Counter(verdict["kind"] for verdict in verdicts)
    assert min(kinds[kind] for kind in ("unique", "near_duplicate", "exact_duplicate", "deleted")) > 20, kinds
    assert sum("replaces" in verdict for verdict in verdicts) > 20
    assert sum("heir" in verdict for verdict in verdicts) > 5
