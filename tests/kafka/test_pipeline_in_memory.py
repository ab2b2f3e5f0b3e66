"""`stream_lsh.testing` publishes what workers on a real broker publish."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from support.kafka import plain
from support.kafka.feeding import Record
from support.kafka.group_play import RULES
from support.kafka.harness import OUTPUTS, Pipeline
from support.long_form import rotating

from stream_lsh import testing

NUMBER, PARTITIONS = 500, 3
CREATED = ("unique", "dead_letters")
"""The topics whose records keep the timestamps of documents, as the harness sets `unique_timestamps`."""
UPDATES: dict[str, Any] = {"on_conflict": "update", "deleted_field": "deleted", "key_is_id": "string"}


def feed() -> list[Record]:
    """Without times in the future: there the exact time of arrival counts."""
    records = plain.history(NUMBER, PARTITIONS, 7)
    return [r for r in records if (plain_time(r) or 0) <= (r.timestamp or 0)]


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


@pytest.mark.parametrize(
    "given",
    rotating(
        [
            pytest.param({"window": "8m", "shards": 1}, id="a window"),
            pytest.param(
                {"compare_with": "kept", "shards": 2, "decision_lag": 60, "cloudevents_source": "/tests"},
                id="two shards",
            ),
        ],
        1,
    ),
)
def test_records_are_those_of_workers(broker: Any, prefix: str, tmp_path: Path, given: dict[str, Any]) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    settings = {
        **plain.SURE, **UPDATES, "partitions": PARTITIONS, "time_field": "ts", "groups": True, "source_field": "outlet",
        "alerts": rules, "frame_documents": 1, "linger_ms": 0, **given,
    }  # fmt: skip
    with Pipeline(broker.bootstrap, prefix, tmp_path, **settings) as pipeline:
        pipeline.worker()
        pipeline.wait_for(1, "signatures")  # the signer has committed where the partitions begin
        pipeline.produce(feed())
        pipeline.finish()
        found, frames = pipeline.outputs(), pipeline.recorded()
    assert [sequenced.offset for sequenced, _ in frames] == [*range(1, len(frames) + 1)]

    documents, signed_at = {record.source: record for record in found.documents}, 0
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
        ours, theirs = (published(getattr(outputs, name), timed=name in CREATED) for outputs in (memory, found))
        assert ours == theirs, name
        counts[name] = sum(map(len, theirs.values()))
    assert min(counts.values()) > 3, counts
    assert sum(record.value is None for record in memory.unique) > 3
