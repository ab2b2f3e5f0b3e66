"""Topics and disks of earlier versions: workers go on with them, with the disks or without."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.frozen import FOLDER, packed, unpacked
from support.kafka import plain
from support.simulation.cluster import Cluster
from support.simulation.fixtures import folder
from support.simulation.log import Batch
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.kafka.tools import drain

N, PARTITIONS = 60, 2
GIVEN: dict[str, Any] = {
    **plain.SURE, "on_conflict": "update", "deleted_field": "deleted", "key_is_id": "string", "groups": True,
    "source_field": "outlet", "partitions": PARTITIONS, "frame_documents": 8,
}  # fmt: skip
PIPELINES: dict[str, dict[str, Any]] = {
    "shards": {"shards": 2, "decision_lag": 16, "keep": "longest", "record_bytes": 500},
    "window": {"window": "3m", "time_field": "ts"},
    "cleaned": {"shards": 2, "decision_lag": 16, "erase_hours": 0.001, "min_cleanable_bytes": 1},
}
"""What the frozen pipelines were made with. A pipeline of an earlier version keeps its settings."""
ARCHIVES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/pipeline-*.tar.xz"))


@simulated()
async def left_behind(world: World, cluster: Cluster, name: str) -> str:
    """An archive in base64: the settings, the topics after the first documents, and the disk of a worker that has
    drained and ended."""
    pipeline, left = Pipeline(world, cluster, **GIVEN, **PIPELINES[name]), Path(folder()) / "left"
    await pipeline.create_topics()
    worker = pipeline.start()
    await pipeline.feed(plain.history(N, PARTITIONS, 1, families=6), 5)
    await pipeline.finish([worker], 300)
    await pipeline.drain()
    await pipeline.stop(worker)
    if name == "cleaned":
        assert cluster.topics[pipeline.topics.changelog].logs[0].start > 0
    shutil.copytree(worker.folder, left / "disk")
    topics = {
        topic: {"config": found.set, "logs": [[log.start, [*map(_text, log.batches)]] for log in found.logs]}
        for topic, found in cluster.topics.items()
    }
    (left / "topics.json").write_text(json.dumps(topics))
    (left / "settings.json").write_text(json.dumps(GIVEN | PIPELINES[name]))
    return base64.b64encode(packed(left)).decode()


def _text(batch: Batch) -> str:
    return base64.b64encode(batch.data).decode()


def test_there_are_some() -> None:
    assert ARCHIVES


@simulated()
@pytest.mark.parametrize("with_disk", [True, False])
@pytest.mark.parametrize("archive", ARCHIVES)
async def test_workers_continue_with_topics_of_an_earlier_version(
    world: World, cluster: Cluster, archive: str, with_disk: bool
) -> None:
    left = Path(folder()) / "left"
    unpacked((FOLDER / archive).read_bytes(), left)
    for topic, found in json.loads((left / "topics.json").read_text()).items():
        cluster.create(topic, len(found["logs"]), **found["config"])
        for log, (start, batches) in zip(cluster.topics[topic].logs, found["logs"], strict=True):
            log.restore(start, map(base64.b64decode, batches))
    pipeline = Pipeline(world, cluster, **json.loads((left / "settings.json").read_text()))
    worker = pipeline.start(folder=left / "disk" if with_disk else None)
    await drain.resume(pipeline.settings)
    await pipeline.feed(plain.history(N, PARTITIONS, 2, families=6), 5)
    await pipeline.finish([worker], 300)
    await pipeline.drain()
    await pipeline.stop(worker)
    pipeline.check()
