"""Erasing on a real broker: what is left in the segment files of its topics."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from support.contents import contents
from support.kafka import plain
from support.kafka.brokers import local_broker
from support.kafka.feeding import Record
from support.kafka.harness import Pipeline
from support.long_form import rotating
from support.waiting import until

from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.names import wanted

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("erased files")]

QUICK = {
    "log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500", "log.cleaner.backoff.ms": "500",
    "file.delete.delay.ms": "100",
}  # fmt: skip
TIME, STEP = 10**12, 6000  # ms
EXPIRING, OF_GROUPS = {"signatures", "frames", "matches"}, {"memberships"}
CHANGELOGS = {"changelog": {}, "decisions": {}, "group_changelog": {"max_compaction_lag_ms": "1000"}}
SEVERAL = {"shards": 2, "decision_lag": 16, "compare_with": "kept"}
NAME, VICTIM = "victim-", b"victim-"


def records(first: int, last: int) -> list[Record]:
    """Pairs of documents with words of their own; the first ten documents are to be deleted."""
    return [
        record(i, id=f"{NAME if i < 10 else 'name-'}{i}", text=" ".join(f"w{i // 2}x{k}" for k in range(12)))
        for i in range(first, last)
    ]


def record(number: int, **fields: object) -> Record:
    return Record(0, None, orjson.dumps({**fields, "ts": TIME + STEP * number}))


async def alter(pipeline: Pipeline, *names: str, **given: str) -> None:
    """Change settings of topics, which are attributes of `Topics`."""
    more = {name.replace("_", "."): value for name, value in given.items()}
    specs = {spec.name: spec.configs for spec in wanted(pipeline.settings)}
    async with admin(pipeline.settings) as client:
        for topic in (getattr(pipeline.topics, name) for name in names):
            await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, specs[topic] | more)])


@pytest.mark.parametrize("given", [{"window": "2h", "groups": True}, *rotating([{}, SEVERAL], 1)])
def test_what_is_deleted_leaves_the_segment_files(tmp_path: Path, prefix: str, given: dict[str, Any]) -> None:
    """Those of a changelog by a snapshot or by compaction, those of decisions by what follows them, and those of the
    other topics by retention."""
    expiring = EXPIRING | (OF_GROUPS if "groups" in given else set())
    changelogs = {"changelog"} | ({"group_changelog"} if "groups" in given else set())
    changelogs |= {"decisions"} if "shards" in given else set()
    with (
        local_broker(tmp_path / "broker", properties=QUICK, brief=True) as broker,
        Pipeline(
            broker.bootstrap, prefix, tmp_path, partitions=1, **plain.SURE, on_conflict="update", erase_hours=0.002,
            deleted_field="deleted", time_field="ts", frame_documents=8, memtable_documents=32, segment_documents=60,
            **given,
        ) as pipeline,
    ):  # fmt: skip
        for name in changelogs:
            pipeline.run(alter(pipeline, name, segment_ms="1000", **CHANGELOGS[name]))
        worker, number = pipeline.worker(), 60

        def left() -> set[str]:
            """The topics that have an id of the deleted documents in files, and `folder` for the worker's folder."""
            topics = expiring | changelogs
            folders = {name: [*broker.folder.rglob(f"{getattr(pipeline.topics, name)}-?")] for name in topics}
            folders["folder"] = [pipeline.data(worker)]
            return {
                name
                for name, found in folders.items()
                if any(VICTIM in each for folder in found for each in contents(folder))
            }

        def erased() -> bool:
            """Send more documents, with which a segment file can end."""
            nonlocal number
            number += 8
            pipeline.produce(records(number, number + 8))
            pipeline.finish()
            return left() <= expiring

        pipeline.produce(records(0, number))
        pipeline.finish()
        assert left() == {*expiring, *changelogs, "folder"}
        pipeline.produce([record(number + i, id=f"{NAME}{i}", deleted=True) for i in range(10)])
        pipeline.finish()
        until(erased, why="it is in the changelog, or in the folder")
        pipeline.stop(worker)
        pipeline.run(alter(pipeline, *expiring, retention_ms="1"))
        until(lambda: not left(), why="retention leaves it")
