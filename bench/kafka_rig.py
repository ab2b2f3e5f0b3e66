"""What the benchmarks on Kafka share: a broker, topics of their own for each run, and workers as real processes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.structs import ConsumerRecord

from bench.engine import COMMAND
from bench.kafka_processes import Processes
from stream_lsh.kafka.client.connection import admin, client_options
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools import topics
from stream_lsh.kafka.tools.broker import KafkaBroker
from stream_lsh.kafka.tools.libraries import VERSIONS

PACKAGES = ("aiokafka", "faust-streaming", "numpy", "numba", "rocksdict")
POSTS: dict[str, Any] = {
    "text_field": "title,text", "shingles": "words:3", "tokens": "word", "normalize": "lower,space",
    "compare_with": "all",
}  # fmt: skip
PATIENCE = 120.0  # seconds without any progress after which a benchmark gives up
MYSELF = "benchmark"
TAIL = 25  # lines of a worker's log that are shown when it fails


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that all benchmarks on Kafka have."""
    parser.add_argument("--bootstrap", help="host:port of a broker that runs (default: start one)")
    parser.add_argument("--kafka", default=VERSIONS[0], choices=VERSIONS, help="version to start (%(default)s)")
    parser.add_argument("--settings", default="", help='settings of the workers, for example "verify=signature"')
    parser.add_argument("--keep-logs", type=Path, metavar="FOLDER", help="where the workers' logs are to be kept")


def parse_settings(text: str) -> dict[str, Any]:
    """`name=value name=value` as a dictionary."""
    found: dict[str, Any] = {}
    for pair in shlex.split(text):
        name, equal, value = pair.partition("=")
        if not equal:
            raise SystemExit(f"--settings: {pair!r} is not name=value")
        found[name] = value
    return found


class Worker:
    """`stream-lsh kafka worker` as a user starts it. Its settings come through the environment."""

    def __init__(self, settings: KafkaSettings, variables: dict[str, str], options: Sequence[str], log: Path) -> None:
        self.settings, self.log = settings, log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*COMMAND, "kafka", "worker", *options], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, **variables}, start_new_session=True,
            )  # fmt: skip
        self.pid = self.process.pid

    def check(self) -> None:
        """Stop the benchmark if the worker has ended."""
        if self.process.poll() is not None:
            raise SystemExit(f"the worker ended with code {self.process.returncode}:\n{self.tail()}")

    def tail(self) -> str:
        """The end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-TAIL:])

    def stop(self, timeout: float = 60) -> float:
        """SIGTERM, and wait for its end; the seconds that took."""
        began = time.perf_counter()
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        return time.perf_counter() - began

    def kill(self) -> None:
        """SIGKILL to it and all its children, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Run:
    """One prefix with its topics and workers."""

    rig: Rig
    settings: KafkaSettings
    given: dict[str, Any]
    folder: Path
    workers: list[Worker] = field(default_factory=list)

    @property
    def topics(self) -> Topics:
        return Topics.of(self.settings)

    def worker(
        self, *, roles: Sequence[str] = (), processes: str = "groups", name: str = "worker", **settings: Any
    ) -> Worker:
        """Start a worker; `name` tells its data folder and its log from those of others.

        Args:
            roles: all, if none is named. settings: that it shall have besides those of the run.
        """
        values = {**self.given, "data_folder": self.folder / f"data-{name}", **settings}
        variables = {f"STREAM_LSH_{key.upper()}": str(value) for key, value in values.items()}
        options = ["--processes", processes]
        if roles:
            options += ["--roles", ",".join(roles)]
        log = self.folder / f"{name}.log"
        worker = Worker(self.settings.model_copy(update=settings), variables, options, log)
        self.workers.append(worker)
        return worker

    def check(self) -> None:
        """Stop the benchmark if a worker has ended by itself."""
        for worker in self.workers:
            worker.check()

    def end(self, worker: Worker) -> float:
        """Stop one worker and forget it; the seconds that took."""
        self.workers.remove(worker)
        return worker.stop()


@dataclass
class Rig:
    """A broker to measure with, and a folder for what the runs leave behind."""

    bootstrap: str
    folder: Path
    given: dict[str, Any]
    logs: Path | None = None
    broker: KafkaBroker | None = None

    @asynccontextmanager
    async def run(self, name: str, **settings: Any) -> AsyncIterator[Run]:
        """Topics under a prefix of their own; at the end its workers are killed and its topics deleted."""
        prefix = f"bench-{name}-{uuid.uuid4().hex[:8]}"
        given = {**POSTS, "bootstrap_servers": self.bootstrap, "topic_prefix": prefix, **settings, **self.given}
        folder = Path(tempfile.mkdtemp(dir=self.folder, prefix=f"{name}-"))
        made = KafkaSettings(**given)
        run = Run(self, made, given, folder)
        await topics.create(made)
        try:
            yield run
        finally:
            for worker in run.workers:
                worker.kill()
            if self.logs is not None:
                for log in folder.glob("*.log"):
                    shutil.copy(log, self.logs / f"{prefix}-{log.name}")
            async with admin(made) as client:
                own = [name for name in await client.list_topics() if name.startswith(prefix)]
                await client.delete_topics(own)
            shutil.rmtree(folder, ignore_errors=True)

    async def topic(self, settings: KafkaSettings, name: str, partitions: int = 1, **configs: str) -> None:
        """Make one more topic."""
        async with admin(settings) as client:
            await client.create_topics([NewTopic(name, partitions, -1, {}, configs)])

    def watch(self, *workers: Worker) -> Processes:
        """Watch workers, the broker if it is ours, and the benchmark itself."""
        found = Processes()
        found.add(os.getpid(), MYSELF)
        for worker in workers:
            found.add(worker.pid, "worker")
        if self.broker is not None and self.broker.pid is not None:
            found.add(self.broker.pid, "broker")
        return found


@contextmanager
def rig(given: argparse.Namespace) -> Iterator[Rig]:
    """A broker of its own in a folder that is deleted at the end, or the one that --bootstrap names."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it tells of each topic that was just made
    given.work.mkdir(parents=True, exist_ok=True)
    if given.keep_logs is not None:
        given.keep_logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.work, prefix="kafka-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        settings = parse_settings(given.settings)
        if given.bootstrap:
            yield Rig(given.bootstrap, folder, settings, given.keep_logs)
            return
        with KafkaBroker(folder / "broker", given.kafka) as broker:
            yield Rig(broker.bootstrap, folder, settings, given.keep_logs, broker)


Ends = dict[TopicPartition, int]


class Progress:
    """Looks again and again how far topics have got that others write (what is committed of them), and at processes.

    Attributes:
        ends: (seconds since 1970, first offset that a reader does not see yet, by partition) of each look.
    """

    def __init__(self, run: Run, names: Sequence[str], processes: Processes | None = None, every: float = 0.03) -> None:
        self._run, self._names, self._every = run, names, every
        self.processes = processes
        self.ends: list[tuple[float, Ends]] = []
        self._changed = time.time()

    async def __aenter__(self) -> Progress:
        self._consumer = await reader(self._run.settings, self._names)
        self._task = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._consumer.stop()

    async def _look(self) -> None:
        places = list(self._consumer.assignment())
        while True:
            found = await self._consumer.end_offsets(places)
            if not self.ends or found != self.ends[-1][1]:
                self._changed = time.time()
            self.ends.append((time.time(), found))
            if self.processes is not None:
                self.processes.look()
            await asyncio.sleep(self._every)

    def total(self, name: str) -> int:
        """Offsets of a topic so far, all partitions together; markers of transactions count."""
        return sum(end for place, end in self.ends[-1][1].items() if place.topic == name) if self.ends else 0

    def final(self, name: str) -> float:
        """When a topic got what it has now."""
        last = {place: end - 1 for place, end in self.ends[-1][1].items() if place.topic == name}
        return seen_at(self.ends, last)

    async def settled(self, name: str, at_least: int, still: float = 0.5) -> None:
        """Wait until a topic has so many offsets, and nothing has changed for so many seconds.

        Raises:
            SystemExit: a worker has ended, or there is no progress any more.
        """
        while True:
            if self._task.done():
                self._task.result()
            self._run.check()
            quiet = time.time() - self._changed
            if self.total(name) >= at_least and quiet >= still:
                return
            if quiet > PATIENCE:
                tails = "\n".join(worker.tail() for worker in self._run.workers)
                raise SystemExit(
                    f"{name} has {self.total(name)} offsets of at least {at_least} and does not get more:\n{tails}"
                )
            await asyncio.sleep(0.05)

    async def records(self, name: str, enough: Callable[[list[ConsumerRecord]], bool], expected: int) -> list[Any]:
        """All records of a topic, once there are enough of them."""
        while True:
            await self.settled(name, expected)
            before = self.total(name)
            found = await read_all(self._run.settings, name)
            if enough(found):
                return found
            expected = before + 1


async def reader(settings: KafkaSettings, names: Sequence[str]) -> AIOKafkaConsumer:
    """A consumer of all partitions of topics, without a group, that sees what is committed; to be stopped."""
    consumer = AIOKafkaConsumer(
        **client_options(settings), isolation_level="read_committed", enable_auto_commit=False,
        max_partition_fetch_bytes=16 << 20, fetch_max_bytes=64 << 20, auto_offset_reset="earliest",
    )  # fmt: skip
    await consumer.start()
    async with admin(settings) as client:
        described = await client.describe_topics(list(names))
    consumer.assign(
        [TopicPartition(topic["topic"], p["partition"]) for topic in described for p in topic["partitions"]]
    )
    return consumer


async def read_all(settings: KafkaSettings, name: str) -> list[ConsumerRecord]:
    """All records that a topic has now, by partition and offset."""
    consumer = await reader(settings, [name])
    try:
        places = list(consumer.assignment())
        ends = await consumer.end_offsets(places)
        await consumer.seek_to_beginning(*places)
        found: list[ConsumerRecord] = []
        while any([await consumer.position(place) < ends[place] for place in places]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
        return sorted(found, key=lambda record: (record.partition, record.offset))
    finally:
        await consumer.stop()


def seen_at(ends: Sequence[tuple[float, Ends]], last: Ends) -> float:
    """When a reader could see the records at these offsets, all of them: the first look that had them."""
    for at, found in ends:
        if all(found.get(place, 0) > offset for place, offset in last.items()):
            return at
    raise ValueError("these records were never seen")


def last_offsets(records: Sequence[ConsumerRecord]) -> Ends:
    """The offset of the last record of each partition."""
    found: Ends = {}
    for record in records:
        place = TopicPartition(record.topic, record.partition)
        found[place] = max(found.get(place, -1), record.offset)
    return found
