"""`stream_lsh.testing` publishes what the workers of a pipeline publish."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from support.kafka import plain
from support.kafka.feeding import Record
from support.kafka.group_play import RULES
from support.kafka.harness import OUTPUTS
from support.kafka.oracle import order
from support.long_form import rotating
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh import testing

NUMBER, PARTITIONS = 500, 3
CREATED = ("unique", "dead_letters")
"""The topics whose records keep the timestamps of documents, as the harness sets `unique_timestamps`."""
UPDATES: dict[str, Any] = {"on_conflict": "update", "deleted_field": "deleted", "key_is_id": "string"}


def plain_time(record: Record) -> int | None:
    try:
        found = json.loads(record.value or b"")
    except ValueError:
        return None
    return found.get("ts") if isinstance(found, dict) else None


def published(records: Iterable[Any], *, timed: bool) -> dict[int, list[tuple[object, ...]]]:
    """By partition, all of each record but its offset, and its timestamp unless it is `timed`."""
    found: dict[int, list[tuple[object, ...]]] = defaultdict(list)
    for record in records:
        found[record.partition].append((record.key, record.value, record.headers, record.timestamp if timed else 0))
    return found


@simulated()
@pytest.mark.parametrize(
    "given",
    rotating(
        [
            {"window": "8m", "shards": 1},
            {"compare_with": "kept", "shards": 2, "decision_lag": 60, "cloudevents_source": "/tests"},
        ],
        1,
    ),
    ids=str,
)
async def test_records_are_those_of_workers(
    world: World, cluster: Cluster, tmp_path: Path, given: dict[str, Any]
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    pipeline = Pipeline(
        world, cluster, **plain.SURE, **UPDATES, partitions=PARTITIONS, time_field="ts", groups=True,
        source_field="outlet", alerts=rules, frame_documents=1, linger_ms=0, **given,
    )  # fmt: skip
    await pipeline.create_topics()
    worker = pipeline.start()
    while not pipeline.records("signatures"):  # the signer has committed where the partitions begin
        await asyncio.sleep(1)
    # Without times in the future: there the exact time of arrival counts.
    records = plain.history(NUMBER, PARTITIONS, 7)
    await pipeline.feed([r for r in records if (plain_time(r) or 0) <= (r.timestamp or 0)], 20)
    await pipeline.finish([worker], 300)
    await pipeline.drain()
    found = {name: pipeline.records(name) for name in ("documents", *OUTPUTS, "groups", "alerts")}
    copies = [record for record in pipeline.records("frames") if record.partition == 0]
    frames = [each for each in order(pipeline.settings, copies) if len(each[1].source)]

    documents, signed_at = {record.source: record for record in found["documents"]}, 0
    with testing.Pipeline(pipeline.settings, clock=lambda: signed_at) as memory:
        for _, frame in frames:
            source = frame.source
            record, signed_at = documents[int(source.partitions[0]), int(source.offsets[0])], source.signed_at
            memory.send(
                record.value, key=record.key, headers=record.headers, partition=record.partition,
                timestamp=record.timestamp,
            )  # fmt: skip
    counts = {}
    for name in (*OUTPUTS, "groups", "alerts"):
        ours, theirs = (published(records, timed=name in CREATED) for records in (getattr(memory, name), found[name]))
        assert ours == theirs, name
        counts[name] = sum(map(len, theirs.values()))
    assert min(counts.values()) > 3, counts
    assert sum(record.value is None for record in memory.unique) > 3
