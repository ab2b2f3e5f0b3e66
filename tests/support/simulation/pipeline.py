"""The workers of a pipeline in a simulated Kafka: the real roles, each worker a process that can be killed.

Everything is the code that runs in production, but for what `clock.SUBSTITUTES` lists and `InOwnLoop`.
"""

from __future__ import annotations

import asyncio
import pkgutil
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from stream_lsh.index.store.errors import output_error, state_error
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.kafka.match.faust_driver import ConsumerThread
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.registry.encoding import HEAD
from stream_lsh.kafka.run.process import STAGES, Job, run_roles
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools import drain
from stream_lsh.kafka.tools.topics import create
from stream_lsh.wire.source import TOPIC_BITS
from support.kafka.feeding import Record
from support.kafka.harness import OUTPUTS, passed_on
from support.kafka.oracle import Outputs, answers, check, order
from support.kafka.stages import delete_before
from support.simulation.clock import Clock
from support.simulation.cluster import Cluster
from support.simulation.fixtures import folder
from support.simulation.world import Process, World

ROLES = ("sign", "sequence", "match", "judge", "forward")
_FULL = "IO error: No space left on device: While appending to file"
CLASSES = {role: pkgutil.resolve_name(path) for role, path in STAGES.items()}


class InOwnLoop:
    """In place of mode's `WorkerThread`: the thread's loop is a loop of the world already, so nothing has to run it."""

    def __init__(self, service: Any) -> None:
        self._service = service

    def start(self) -> None:
        self._task = self._service.thread_loop.create_task(self._serve())

    async def _serve(self) -> None:
        try:
            await self._service._serve()
        except Exception:
            self._service.set_shutdown()

    def stop(self) -> None:
        """The loop stays until its process ends."""


def _limit_disks(full: Callable[[Path], bool]) -> None:
    """Let stores on full disks fail as RocksDB does: one that could not write writes nothing until it is opened again.
    Each seed has a process of its own."""
    write, opened, failed = Store.write, Store.__init__, set[int]()

    def opening(store: Store, path: Path, **given: Any) -> None:
        failed.discard(id(store))
        if full(path) and not given.get("read_only"):
            raise state_error(path, Exception(_FULL))
        opened(store, path, **given)

    def writing(store: Store, *given: Any, **named: Any) -> None:
        if full(store.path):
            failed.add(id(store))
        if id(store) in failed:
            raise output_error(store.path, Exception(_FULL))
        write(store, *given, **named)

    Store.__init__, Store.write = opening, writing  # type: ignore[method-assign]


class Pipeline:
    """A pipeline and its workers.

    Args:
        given: settings.

    Attributes:
        full: data folders on disks without room.
        decoders: of values in Avro, by their heads; `records` has JSON for them.
    """

    def __init__(self, world: World, cluster: Cluster, **given: Any) -> None:
        self.world, self.cluster = world, cluster
        ConsumerThread.Worker = InOwnLoop
        self.full: set[Path] = set()
        self.decoders: dict[bytes, Callable[[bytes], bytes]] = {}
        _limit_disks(lambda path: not self.full.isdisjoint(path.parents))
        self._folder = Path(tempfile.mkdtemp(dir=folder()))
        self._given = {
            "bootstrap_servers": cluster.bootstrap, "topic_prefix": "sim", "session_timeout_ms": 6000,
            "unique_timestamps": "CreateTime", **given,
        }  # fmt: skip
        self._started = 0
        self._deleted: dict[str, list[Record]] = {}
        self.settings = self._settings(self._folder / "nobody")
        self.topics = Topics.of(self.settings)

    def _settings(self, folder: Path, **given: Any) -> KafkaSettings:
        return KafkaSettings(**{**self._given, "data_folder": folder, **given})

    async def create_topics(self) -> None:
        await create(self.settings)

    def start(
        self, *roles: str, instance: str | None = None, folder: Path | None = None, **further: Any
    ) -> Worker:  # fmt: skip
        """Start a worker. folder: of one that is not there any more; it goes on with a copy, as the files of a process
        that has been killed stay open in ours. further: settings of its own."""
        self._started += 1
        own = self._folder / str(self._started)
        if folder is not None and folder.exists():
            shutil.copytree(folder, own)
        given = further if instance is None else {**further, "instance": instance}
        return Worker(self, f"worker-{self._started}", self._settings(own, **given), roles or self.settings.roles)

    async def feed(self, documents: Iterable[Record], rate: float) -> None:
        """Produce documents one by one, at random intervals, so many a second."""
        options = {"bootstrap_servers": self.cluster.bootstrap, "enable_idempotence": True}
        async with AIOKafkaProducer(**options) as producer:
            for one in documents:
                topic, partition = self.topics.place(one.partition)
                await producer.send(
                    topic, one.value, one.key, partition, timestamp_ms=one.timestamp,
                    headers=list(one.headers),
                )  # fmt: skip
                await asyncio.sleep(self.world.chance.expovariate(rate))

    def records(self, name: str) -> list[Record]:
        """The committed records of a topic (an attribute of Topics), in order within a partition, deleted ones, too.
        Those of several documents topics are together, by source partition."""
        names = self.topics.sources if name == "documents" else (getattr(self.topics, name),)
        found = [
            Record(number << TOPIC_BITS | partition, record.key, self._json(record.value), tuple(record.headers),
                   record.timestamp, record.offset)
            for number, topic in enumerate(map(self.cluster.topics.get, names))
            for partition, log in enumerate(topic.logs if topic else ())
            for record in log.committed()
        ]  # fmt: skip
        return self._deleted.get(name, []) + found

    def _json(self, value: bytes | None) -> bytes | None:
        decoder = self.decoders.get((value or b"")[:HEAD])
        return value if value is None or decoder is None else decoder(value)

    async def delete_records(self, *names: str) -> None:
        """Delete all records of topics, as retention does."""
        for name in names:
            self._deleted[name] = self.records(name)
            topic = getattr(self.topics, name)
            for partition in range(len(self.cluster.topics[topic].logs)):
                await delete_before(self.settings, topic, -1, partition)

    def lose_tail(self, name: str, partition: int, records: int) -> None:
        """Let the brokers lose the last records of a partition. Frames that were lost still say what the order was."""
        if name == "frames":
            self._deleted[name] = self.records(name)
        self.cluster.lose_tail((getattr(self.topics, name), partition), records)

    def forwarded(self, partition: int) -> bool:
        """Whether forward has committed all documents of a partition."""
        committed = self.cluster.group(self.topics.group("forward")).offsets.committed
        found = committed.get((self.topics.documents, partition))
        return found is not None and found.offset >= self.cluster.topics[self.topics.documents].logs[partition].end

    async def finish(self, workers: Sequence[Worker], seconds: float) -> None:
        """Wait until every document has its verdict and has been passed on.

        Raises:
            AssertionError: a worker has given up, or that takes longer.
        """
        end = Clock.now + seconds
        while not self._complete():
            assert Clock.now < end, f"after {seconds:g} s: {self.counts()}"
            for worker in workers:
                if worker.ended.done():
                    worker.ended.result()
                    raise AssertionError(f"{worker.process} has ended")
            await asyncio.sleep(0.5)

    async def stop(self, *workers: Worker) -> None:
        """Ask workers to drain and end, and wait until they have."""
        for worker in workers:
            worker.stop()
        for worker in workers:
            await worker.ended

    async def drain(self) -> None:
        """Stop reading, and wait until all that was read is finished, and all groups are folded."""
        await drain.follow(self.settings, await drain.begin(self.settings), 100, lambda left: None)

    def counts(self) -> dict[str, int]:
        return {name: len(self.records(name)) for name in ("documents", *OUTPUTS)}

    def _complete(self) -> bool:
        found = self.counts()
        passed = sum(passed_on(record.value) for record in self.records("verdicts"))
        return found["verdicts"] >= found["documents"] and found["unique"] + found["dead_letters"] >= passed

    def check(self) -> None:
        """Compare all outputs with what the embedded engine says to the recorded order, line for line."""
        documents = self.records("documents")
        recorded = order(self.settings, (record for record in self.records("frames") if record.partition == 0))
        outputs = (*OUTPUTS, "groups", "alerts") if self.settings.groups else OUTPUTS
        found = Outputs(documents, **{name: self.records(name) for name in outputs})
        check(found, answers(self.settings, self._folder / "oracle", recorded, documents), self.topics.documents)


class Worker:
    """A worker that runs. ended: its end, with its error."""

    def __init__(self, pipeline: Pipeline, name: str, settings: KafkaSettings, roles: Sequence[str]) -> None:
        self.settings, self.roles = settings, roles
        self.process: Process = pipeline.world.process(name)
        self._stop = asyncio.Event()
        self.ended = self.process.start(self._run())

    @property
    def folder(self) -> Path:
        return self.settings.data_folder

    async def _run(self) -> None:
        await run_roles(Job(roles=tuple(self.roles)), self.settings, CLASSES, self._stop)

    def stop(self) -> None:
        """Ask it to drain and end, also if it has not begun yet."""
        self.process.loop.call_soon(self._stop.set)
