"""The demo on Kafka and the consumers of examples/ as processes: what they start, write and leave, also when killed."""

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from support.kafka.brokers import is_running, local_broker
from support.kafka.feeding import Record, produce
from support.kafka.harness import Pipeline, descendants
from support.kafka.stages import positions
from support.long_form import rotating
from support.waiting import PATIENCE, until

from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.settings import KafkaSettings

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


DOCUMENTS = 150


class Running:
    """The command, with a folder of its own for temporary files; what it prints is in `out` and `err`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._out, self._err = folder / "out", folder / "err"
        command = [sys.executable, "-m", "stream_lsh", "demo", "--kafka", "--port", "0", "--rate", "100"]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*command, "--documents", str(DOCUMENTS), *options], stdout=out, stderr=err,
                env=os.environ | {"TMPDIR": str(self.temporary)},
            )  # fmt: skip

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait_for(self, pattern: str) -> str:
        """Until a message is there; its first group."""

        def found() -> re.Match[str] | None:
            assert self.process.poll() is None, self.err
            return re.search(pattern, self.err)

        until(found, why=pattern)
        match = re.search(pattern, self.err)
        assert match is not None
        return match[1]


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Running]:
    """The command; what is left of it is killed at the end."""
    demo = Running(folder, *options)
    left = list[int]()
    try:
        yield demo
    finally:
        left = descendants(demo.process.pid)
        demo.process.kill()
        demo.process.wait()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def command_of(pid: int) -> str:
    return subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True).stdout


async def topics(bootstrap: str) -> list[str]:
    async with admin(KafkaSettings(bootstrap_servers=bootstrap)) as client:
        return list(await client.list_topics())


def test_it_shows_all_of_a_pipeline_and_leaves_nothing_on_a_broker_that_is_given(broker: Any, tmp_path: Path) -> None:
    with running(tmp_path, "--bootstrap-servers", broker.bootstrap) as demo:
        prefix = demo.wait_for(r"topics of the prefix (\S+) are there")
        assert f"{prefix}.unique" in asyncio.run(topics(broker.bootstrap))
        url = demo.wait_for(r"the page is at (http\S+)")
        demo.wait_for(f"(the feed has ended): {DOCUMENTS} documents")
        demo.wait_for(f"{DOCUMENTS} (verdicts), .* 1 alert")
        assert httpx.get(url).headers["content-type"].startswith("text/html")
        stats = httpx.get(f"{url}/v1/stats").json()
        assert stats["totals"]["documents"] == DOCUMENTS
        groups = httpx.get(f"{url}/v1/groups", params={"order": "largest"}).json()["groups"]
        assert groups[0]["total_members"] >= 10, "the story that raised the alert"
        children = descendants(demo.process.pid)
        assert len(children) == 2, "a worker and the page"
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(PATIENCE) == 0, demo.err
        assert not any(map(is_running, children))
    lines = demo.out.splitlines()
    assert sum(line.startswith("pair ") for line in lines[:-5]) > 0
    assert sum(line.startswith("alert ") for line in lines[:-5]) == 1
    assert [line.split()[0] for line in lines[-5:]] == ["documents", "verdicts", "pairs", "groups", "alerts"]
    assert lines[-5].startswith(f"documents  {DOCUMENTS} sent")
    assert not [name for name in asyncio.run(topics(broker.bootstrap)) if name.startswith(prefix)]
    assert not list(demo.temporary.iterdir())


@pytest.mark.parametrize("what", rotating(["signal", "worker", "broker", "demo"], 2))
def test_with_a_broker_of_its_own_all_ends_together(what: str, tmp_path: Path) -> None:
    local_broker(tmp_path)  # or skip
    if what == "demo" and sys.platform != "linux":
        pytest.skip("only Linux ends the children of a killed process")
    kept = tmp_path / "kept"
    with running(tmp_path, *(["--keep", os.path.relpath(kept)] if what == "worker" else [])) as demo:
        demo.wait_for(r"Kafka answers at (\S+)")
        demo.wait_for(r"\d s  (the first pair)")
        children = descendants(demo.process.pid)
        names = {pid: command_of(pid).split() for pid in children}
        victim = {
            "signal": demo.process.pid, "demo": demo.process.pid,
            "worker": next((pid for pid, words in names.items() if "worker" in words and "--config" in words), 0),
            "broker": next((pid for pid, words in names.items() if "kafka.Kafka" in words), 0),
        }[what]  # fmt: skip
        os.kill(victim, signal.SIGTERM if what == "signal" else signal.SIGKILL)
        code = demo.process.wait(PATIENCE)
        until(lambda: not any(map(is_running, children)), why=demo.err)
    if what == "signal":
        assert code == 0, demo.err
    elif what == "worker":
        assert code == 1 and "the worker ended with signal 9; its log" in demo.err
        assert {path.name for path in kept.iterdir()} >= {"kafka", "worker", "settings.toml", "worker.log", "page.log"}
    elif what == "broker":
        assert code == 6 and "Kafka has ended; its log" in demo.err
    else:
        assert code == -signal.SIGKILL
        return
    assert not list(demo.temporary.iterdir())


EXAMPLE = Path(__file__).parents[2] / "examples" / "with_quixstreams.py"
NUMBER = 300


async def make_topic(broker: Any, name: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, 1, 1)])
    finally:
        await admin.close()


def test_each_new_document_is_written_once(broker: Any, prefix: str, tmp_path: Path) -> None:
    pytest.importorskip("quixstreams", reason="pip install 'stream-lsh[quix]', in an environment of its own")
    index, out = tmp_path / "index", tmp_path / "out"
    out.mkdir()
    asyncio.run(make_topic(broker, prefix))
    environment = os.environ | {"BOOTSTRAP_SERVERS": broker.bootstrap, "TOPIC": prefix}
    command = [sys.executable, str(EXAMPLE), str(index), str(out)]

    def feed(first: int) -> None:
        """New documents, each followed by a copy with a word more."""
        texts = [" ".join(f"w{n}x{k}" for k in range(20)) for n in range(first, first + NUMBER)]
        lines = [{"id": f"{kind}{n}", "text": text + more} for n, text in enumerate(texts, first)
                 for kind, more in (("new", ""), ("copy", " again"))]  # fmt: skip
        records = [Record(0, None, json.dumps(line).encode()) for line in lines]
        asyncio.run(produce(broker.bootstrap, prefix, records))

    def written() -> list[str]:
        return [json.loads(line)["id"] for path in out.glob("*.jsonl") for line in path.read_text().splitlines()]

    for part in range(3):
        feed(part * NUMBER)
        process = subprocess.Popen(command, env=environment)
        try:
            if part < 2:
                until(lambda: len(written()) > part * NUMBER)  # noqa: B023
                time.sleep(0.2 * part)
                process.kill()
            else:
                until(lambda: len(set(written())) == 3 * NUMBER)
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.wait()
    assert sorted(written()) == sorted(f"new{n}" for n in range(3 * NUMBER))
