"""The two consumers of examples/ as processes: they miss nothing when they are killed, and end in order."""

import json
import os
import random
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.kafka.feeding import Record
from support.kafka.harness import Pipeline
from support.kafka.stages import positions
from support.waiting import PATIENCE, until

EXAMPLES = Path(__file__).parents[2] / "examples"
PARTITIONS = 3
GIVEN = {
    "partitions": PARTITIONS, "on_conflict": "update", "deleted_field": "deleted", "text_field": ("text",),
    "max_matches": 0, "linger_ms": 5,
}  # fmt: skip
SIMILARITY = 0.9


def text(story: int, copy: int) -> str:
    """A story in the words of one copy: some copies are less similar than others."""
    chance = random.Random(story)
    words = [f"w{chance.randrange(10**6)}" for _ in range(60)]
    return " ".join([*words, *(f"own{story}x{copy}x{i}" for i in range(1 + 3 * (copy % 3)))])


def record(id: str, **fields: Any) -> Record:
    value = json.dumps({"id": id, **fields}).encode()
    return Record(zlib.crc32(id.encode()) % PARTITIONS, id.encode(), value)


def kept(pipeline: Pipeline) -> dict[str, Any]:
    """The kept documents by id, from the verdicts in their order."""
    found = pipeline.read("documents", "verdicts")
    documents = {each.source: json.loads(each.value or b"") for each in found["documents"]}
    index: dict[str, Any] = {}
    for line in sorted((json.loads(each.value or b"") for each in found["verdicts"]), key=lambda line: line["seq"]):
        if line.get("tombstone"):
            index.pop(line["id"], None)
            if "new_representative" in line:
                index[line["new_representative"]["id"]] = documents[place(line["new_representative_source"])]
        if line["kind"] == "unique":
            index[line["id"]] = documents[place(line["source"])]
    return index


def place(source: dict[str, Any]) -> tuple[int, int]:
    return source["partition"], source["offset"]


def lines(log: Path) -> list[dict[str, Any]]:
    """What an example has printed, without a line that a kill has cut off."""
    return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


def indexed(log: Path) -> dict[str, Any]:
    """What the indexer has by now."""
    index: dict[str, Any] = {}
    for line in lines(log):
        if line["action"] == "put":
            index[line["id"]] = line["document"]
        else:
            index.pop(line["id"], None)
    return index


@contextmanager
def example(name: str, pipeline: Pipeline, log: Path, code: int) -> Iterator[subprocess.Popen[bytes]]:
    """An example as a process, which ends with this code."""
    environment = os.environ | {
        "BOOTSTRAP_SERVERS": pipeline.settings.bootstrap_servers, "TOPIC_PREFIX": pipeline.settings.topic_prefix,
        "SIMILARITY": str(SIMILARITY),
    }  # fmt: skip
    with log.open("ab") as output:
        process = subprocess.Popen([sys.executable, str(EXAMPLES / name)], stdout=output, env=environment)
    try:
        yield process
        assert process.wait(PATIENCE) == code
    finally:
        process.kill()
        process.wait()


def committed(pipeline: Pipeline, role: str, topic: str) -> bool:
    """Whether a consumer group has committed all records of a topic."""
    found = pipeline.run(positions(pipeline.settings, role, topic))
    name = topic.rpartition(".")[2]
    last = {each.partition: each.offset + 1 for each in pipeline.read(name)[name]}
    return all(found.get(partition, -1) >= end for partition, end in last.items())


def test_examples_miss_nothing_when_they_are_killed(broker: Any, prefix: str, tmp_path: Path) -> None:
    index, alerts = tmp_path / "index", tmp_path / "alerts"
    with Pipeline(broker.bootstrap, prefix, tmp_path, **GIVEN) as pipeline:
        pipeline.worker()
        pipeline.produce(record(f"s{story}c{copy}", text=text(story, copy)) for copy in range(4) for story in range(15))
        pipeline.finish()
        with (
            example("unique_to_indexer.py", pipeline, index, -signal.SIGKILL) as indexer,
            example("alert_on_pairs.py", pipeline, alerts, -signal.SIGKILL) as alerting,
        ):
            until(lambda: indexed(index) == kept(pipeline))
            until(lambda: lines(alerts))
            indexer.kill()
            alerting.kill()

        first = kept(pipeline)
        deleted = sorted(first)[:6]
        changed = {id: text(100 + n, 0) for n, id in enumerate(sorted(first)[6:9])}
        pipeline.produce(
            [*(record(id, deleted=True) for id in deleted), *(record(id, text=new) for id, new in changed.items())]
        )
        pipeline.finish()
        second = kept(pipeline)
        assert len(second.keys() - first.keys()) >= len(deleted), "others represent their groups"
        with (
            example("unique_to_indexer.py", pipeline, index, 0) as indexer,
            example("alert_on_pairs.py", pipeline, alerts, 0) as alerting,
        ):
            until(lambda: indexed(index) == second)
            wanted = {
                f"{pair['older_seq']}-{pair['newer_seq']}"
                for pair in (json.loads(each.value or b"") for each in pipeline.read("pairs")["pairs"])
                if pair["similarity"] >= SIMILARITY
            }
            until(lambda: {line["key"] for line in lines(alerts)} == wanted)
            assert 0 < len(wanted) < len(pipeline.read("pairs")["pairs"])
            until(lambda: committed(pipeline, "indexer", pipeline.topics.unique))
            until(lambda: committed(pipeline, "alert-on-pairs", pipeline.topics.pairs))
            indexer.terminate()
            alerting.terminate()
