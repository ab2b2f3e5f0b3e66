"""A window on Kafka: the changelog gets no longer than the live rows, and a standby from it has the same replies."""

import asyncio
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.kafka import plain
from support.kafka.feeding import Record, produce
from support.kafka.harness import Pipeline, until
from support.kafka.match_play import log_ends
from support.kafka.oracle import json_of
from support.long_form import only_long, rotating
from support.simulation import pipeline as simulation
from support.simulation.cluster import Cluster
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.index.segments.segment import FOLDER
from stream_lsh.wire.changes import Change

pytestmark = pytest.mark.long

FIRST, MORE = 2200, 300
BACKLOG = 24_000  # documents, 5 MB a partition
WINDOW = "24m"  # 360 documents of a history are in it
UPDATES = {"on_conflict": "update", "deleted_field": "deleted", "key_is_id": "string"}
TF_IDF = {"measure": "tf-idf", "groups": True, "text_field": ("text",), **UPDATES}


@pytest.mark.parametrize(
    ("shards", "compare_with", "given"),
    rotating(
        [
            (1, "kept", {**plain.SURE, **UPDATES}),
            (3, "kept", {**plain.SURE}),
            (1, "kept", TF_IDF),
            (2, "all", {**plain.SURE, **UPDATES}),
            (1, "kept", {**plain.SURE}),
        ],
        1,
    ),
)
def test_the_changelog_is_as_long_as_the_live_rows(
    broker: Any, prefix: str, tmp_path: Path, shards: int, compare_with: str, given: dict[str, Any]
) -> None:
    feed = plain.history(FIRST + 2 * MORE, 2, 3)
    with Pipeline(
        broker.bootstrap, prefix, tmp_path, partitions=2, shards=shards, compare_with=compare_with, window=WINDOW,
        time_field="ts", decision_lag=300, frame_documents=5, memtable_documents=250, segment_documents=200,
        session_timeout_ms=10_000, **given,
    ) as pipeline:  # fmt: skip
        pipeline.worker([role for role in pipeline.settings.roles if role != "match"], name="others")
        away = pipeline.worker(("match",), name="away")

        def begins() -> list[tuple[int, int]]:
            return pipeline.run(log_ends(pipeline.settings, pipeline.topics.changelog, shards))

        assert pipeline.produce(feed[:MORE]) == MORE
        pipeline.finish()
        pipeline.stop(away)
        first = pipeline.worker(("match",), name="first")
        pipeline.produce(feed[MORE:FIRST])
        pipeline.finish()
        # Of some 440 frames and more: those of a window, and the 301 that may be asked for again.
        until(lambda: min(begin for begin, _ in begins()) > 60, why=f"the changelogs are {begins()}")

        def oldest(shard: int) -> int:
            return min(int(path.name) for path in (pipeline.data(first) / f"shard-{shard}" / FOLDER).iterdir())

        until(lambda: all(oldest(shard) > 10 for shard in range(shards)), why="old segments are still there")
        first.kill()
        shutil.rmtree(pipeline.data(first))

        # One that has nothing, then one whose disk ends before what is left: both begin with that.
        begun = begins()
        first.start()
        pipeline.produce(feed[FIRST : FIRST + MORE])
        pipeline.finish()
        pipeline.stop(first)
        assert "the shard lacks" not in first.said(10**7)
        away.start()
        pipeline.produce(feed[FIRST + MORE :])
        pipeline.finish()
        assert "has left the window" in away.said(10**7) and "the shard lacks" not in away.said(10**7)
        until(lambda: all(now > before for (now, _), (before, _) in zip(begins(), begun, strict=True)))
        found = pipeline.check()
        if "measure" not in given:  # whose limits are met
            plain.check(pipeline.settings, pipeline.recorded(), found)
        assert len(found.documents) == len(feed)
        kinds = Counter(json_of(record.value)["kind"] for record in found.verdicts)
        assert min(kinds["deleted"], kinds["outdated"]) > 20 or "key_is_id" not in given, kinds
        until(lambda: rows_left(pipeline) < FIRST, why="the changelogs have more than the live rows")


def rows_left(pipeline: Pipeline) -> int:
    """Rows of the changelogs, each of which has all that can be seen."""
    found: dict[int, list[Change]] = {shard: [] for shard in range(pipeline.settings.shards)}
    for record in pipeline.read("changelog", isolation="read_uncommitted")["changelog"]:
        found[record.partition].append(Change.decode(record.value or b"", pipeline.settings))
    for changes in found.values():
        assert changes[-1].seen is not None and changes[-1].seen.first >= changes[0].first
    return sum(changes[-1].last - changes[0].first for changes in found.values())


@only_long
@simulated()
async def test_a_backlog_is_read_by_time(world: World, cluster: Cluster) -> None:
    """Every fourth document is the copy of one within the window, in any of four partitions; all wait when a worker
    begins. Partitions that are read one far ahead of the other lose these pairs."""
    chance, feed, wanted = random.Random(5), list[Record](), 0
    begin, step = 1_700_000_000_000, 250
    texts = [" ".join(f"w{chance.randrange(10**6)}" for _ in range(120)) for _ in range(BACKLOG)]
    for i, text in enumerate(texts):
        if copied := i >= 2000 and i % 4 == 0:
            text = texts[i] = texts[i - chance.randrange(1, 2000)]
        value = json.dumps({"id": i, "text": text}).encode()
        feed.append(Record(chance.randrange(4), None, value, (), begin + step * i))
        wanted += copied
    pipeline = simulation.Pipeline(
        world, cluster, partitions=4, window="10m", text_field=("text",), retention_hours=200_000, compare_with="all"
    )
    await pipeline.create_topics()
    await produce(cluster.bootstrap, pipeline.topics.documents, feed)
    worker, logs = pipeline.start(), cluster.topics[pipeline.topics.verdicts].logs
    while sum(log.end for log in logs) < BACKLOG and not worker.ended.done():
        await asyncio.sleep(1)
    await pipeline.finish([worker], 300)
    found = sum("duplicate" in json_of(record.value or b"")["kind"] for record in pipeline.records("verdicts"))
    assert found > 0.99 * wanted
