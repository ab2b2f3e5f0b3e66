"""The whole pipeline under test: topics, real worker processes, what came out of it, and what should have come out.

The order that was recorded in the frames topic, given to the embedded index, says what every output has to be (see
oracle.py). `Pipeline.check` compares everything with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.process import COMPILED
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.topics import create
from stream_lsh.wire.frames import Frame
from stream_lsh.wire.sequenced import Sequenced
from support.kafka.brokers import several_shards
from support.kafka.feeding import POSTS, Record, produce
from support.kafka.forked import Forked, without_settings
from support.kafka.oracle import Expected, Outputs, answers, check, json_of, order
from support.kafka.stages import members, partitions_of, positions, settled, warm
from support.kafka.stages import until as reached
from support.waiting import PATIENCE, until

OUTPUTS = ("verdicts", "pairs", "unique", "dead_letters")
_STARTED = re.compile(rb": started (\w\S*)")  # what a process says when its roles run and its signals are in hand

T = TypeVar("T")


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, theirs too."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    children = defaultdict(list)
    for line in table.splitlines():
        child, parent, state = line.split(maxsplit=2)
        if not state.startswith("Z"):
            children[int(parent)].append(int(child))
    found, open_ = [], [pid]
    while open_:
        mine = children[open_.pop()]
        found += mine
        open_ += mine
    return found


class Worker:
    """A `stream-lsh kafka worker` with all its processes; what it says is in `log`."""

    def __init__(self, name: str, config: Path, log: Path, roles: Sequence[str], processes: str) -> None:
        self.name = name
        self.roles = tuple(roles)
        self.config = config
        self.log = log
        self.processes = processes
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self._began = 0  # where the log of this run begins

    def start(self, *more: str, **variables: str) -> None:
        """Start it, perhaps again. more: of its command line. variables: of its environment."""
        arguments = [
            "kafka", "worker", "--config", str(self.config), "--roles", ",".join(self.roles), "--processes",
            self.processes,
            *more,
        ]  # fmt: skip
        if not set(self.roles).isdisjoint(COMPILED):
            warm()
        with self.log.open("ab") as log:
            self._began = log.tell()
            # A group of its own: it is killed and stopped as a whole.
            if not variables and sys.platform == "linux":
                self.process = Forked(arguments, self.log)
                return
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stream_lsh.cli", *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, env=without_settings() | variables,
            )  # fmt: skip

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def started(self) -> bool:
        """Whether all its roles have begun in this run."""
        with self.log.open("rb") as log:
            log.seek(self._began)
            jobs = _STARTED.findall(log.read())
        return {role for job in jobs for role in job.decode().split(",")} >= set(self.roles)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def pids(self) -> list[int]:
        """Its processes, the first of them first."""
        return [self.pid, *descendants(self.pid)] if self.running else []

    def signal(self, number: int) -> None:
        """Send a signal to all its processes at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """kill -9, all its processes."""
        if self.process is not None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
            self.process.wait(30)

    def terminate(self) -> None:
        """SIGTERM, as an operator or a container runtime would: to the first process only, when it has begun."""
        assert self.process is not None
        until(lambda: self.started or not self.running, why=f"{self.name} does not begin")
        self.process.terminate()

    def wait(self, patience: float = PATIENCE) -> int:
        """Its exit code."""
        assert self.process is not None
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {patience:.0f} s:\n{self.said()}") from None

    def said(self, last: int = 3000) -> str:
        """The end of what it has said."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return text[-last:]


class Pipeline:
    """One pipeline under a prefix of its own; workers reach the broker `through` a proxy if given. given: settings."""

    def __init__(self, bootstrap: str, prefix: str, folder: Path, *, through: str | None = None, **given: Any) -> None:
        self.folder = folder
        self.through = through or bootstrap
        defaults = {"text_field": POSTS[1], "max_matches": 0, "session_timeout_ms": 6000, "give_up_seconds": 120}
        defaults["unique_timestamps"] = "CreateTime"  # so that all of a record can be compared
        self.given: dict[str, Any] = {**defaults, **several_shards(given), "topic_prefix": prefix, **given}
        self.settings = KafkaSettings(bootstrap_servers=bootstrap, **self.given)
        self.topics = Topics.of(self.settings)
        self.workers: list[Worker] = []
        self._answers = 0

    def __enter__(self) -> Pipeline:
        self.run(create(self.settings))
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()

    @staticmethod
    def run(what: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return asyncio.run(what)

    def worker(
        self, roles: Sequence[str] | None = None, processes: str = "one", *, start: bool = True,
        name: str | None = None, **given: Any,
    ) -> Worker:  # fmt: skip
        """A worker with its own data folder; roles: by default all; given: settings of it alone."""
        roles = self.settings.roles if roles is None else roles
        name = name or f"worker-{len(self.workers)}"
        values = {"bootstrap_servers": self.through, "data_folder": self.folder / f"{name}-data", **self.given, **given}
        config = self.folder / f"{name}.toml"
        config.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in values.items()))
        worker = Worker(name, config, self.folder / f"{name}.log", roles, processes)
        self.workers.append(worker)
        if start:
            worker.start()
        return worker

    def stop(self, *workers: Worker) -> None:
        """Ask workers to drain and end, as an operator would; their exit codes are 0."""
        for worker in workers:
            worker.terminate()
        assert [worker.wait() for worker in workers] == [0] * len(workers), self.report()

    def data(self, worker: Worker) -> Path:
        """Its data folder."""
        return self.folder / f"{worker.name}-data"

    def members(self, role: str) -> int:
        """How many there are in a role's group; -1 while it is being shared out."""
        return self.run(members(self.settings, role))

    def produce(self, records: Iterable[Record]) -> int:
        """Produce at full speed; how many."""
        return self.run(produce(self.settings.bootstrap_servers, self.topics.documents, records))

    def report(self, *more: str) -> str:
        """What to show when something went wrong: the ends of all logs."""
        parts = [f"--- {worker.name} {','.join(worker.roles)}, code {worker.process and worker.process.poll()}:\n"
                 f"{worker.said()}" for worker in self.workers]  # fmt: skip
        return "\n".join([*more, *parts])

    def check_live(self, but: Collection[str] = ()) -> None:
        """Fail if a worker that was started has ended by itself; but: names of those that may have."""
        for worker in self.workers:
            if worker.name in but:
                continue
            code = worker.process.poll() if worker.process is not None else None
            assert code is None or code <= 0, self.report(f"{worker.name} has ended with code {code}")

    def finish(self, *, patience: float = PATIENCE, watch: Callable[[], None] | None = None) -> None:
        """Wait until every document has a verdict and was passed on; fail if for `patience` seconds nothing comes."""
        self.run(self._finish(patience, watch or self.check_live))
        if self.settings.groups:
            self.run(self._grouped())

    async def _grouped(self) -> None:
        """Wait until all that the judge has said of groups is folded."""
        topic = self.topics.memberships
        await settled(self.settings.bootstrap_servers, topic)
        consumer = await self.consumer([topic])
        try:
            (end,) = (await ends(consumer, topic)).values()
        finally:
            await consumer.stop()

        async def folded() -> bool:
            return (await positions(self.settings, "group", topic)).get(0, -1) >= end

        await reached(folded, "all groups are told")

    def wait_for(self, n: int, topic: str = "verdicts", patience: float = PATIENCE) -> None:
        """Wait for so many records of a topic without transactions, or committed verdicts."""
        self.run(self._wait_for(n, topic, patience))

    def produced(self) -> int:
        """How many documents there are."""
        return self.run(self._produced())

    async def _produced(self) -> int:
        consumer = await self.consumer([self.topics.documents])
        try:
            return sum((await ends(consumer, self.topics.documents)).values())
        finally:
            await consumer.stop()

    async def _wait_for(self, n: int, topic: str, patience: float) -> None:
        found = 0
        consumer = await self.consumer([getattr(self.topics, topic)])
        end = time.monotonic() + patience
        try:
            while found < n:
                found += sum(map(len, (await consumer.getmany(timeout_ms=200, max_records=10_000)).values()))
                assert time.monotonic() < end, self.report(f"{found} records of {n} in {topic}")
        finally:
            await consumer.stop()

    async def _finish(self, patience: float, watch: Callable[[], None]) -> None:
        found: Counter[str] = Counter()
        wanted = -1
        names = {getattr(self.topics, name): name for name in ("verdicts", "unique", "dead_letters")}
        consumer = await self.consumer(list(names))
        began = time.monotonic()
        try:
            end = began + patience
            while True:
                counted = sum((await ends(consumer, self.topics.documents)).values())
                if counted != wanted:
                    wanted, end = counted, time.monotonic() + patience
                batches = await consumer.getmany(timeout_ms=300, max_records=20_000)
                for place, records in batches.items():
                    name = names[place.topic]
                    found[name] += len(records)
                    if name == "verdicts":
                        found["passed on"] += sum(passed_on(r.value) for r in records)
                if batches:
                    end = time.monotonic() + patience
                elif found["verdicts"] >= wanted and found["unique"] + found["dead_letters"] >= found["passed on"]:
                    return
                watch()
                seconds = time.monotonic() - began
                assert time.monotonic() < end, self.report(
                    f"after {seconds:.0f} s, {patience:.0f} of them without anything new: {wanted} documents, {found}"
                )
        finally:
            await consumer.stop()

    async def consumer(self, names: Sequence[str], isolation: str = "read_committed") -> AIOKafkaConsumer:
        """A started consumer of all partitions of some topics, at their beginnings."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.settings.bootstrap_servers, enable_auto_commit=False, group_id=None,
            auto_offset_reset="earliest", isolation_level=isolation, fetch_max_bytes=64 << 20,
            max_partition_fetch_bytes=16 << 20, fetch_max_wait_ms=100, metadata_max_age_ms=2000,
        )  # fmt: skip
        await consumer.start()
        consumer.assign([place for name in names for place in await partitions_of(consumer, name)])
        return consumer

    def read(self, *names: str, isolation: str = "read_committed") -> dict[str, list[Record]]:
        """All records of some topics (attributes of Topics), in order within a partition, up to the last one."""
        return self.run(self._read(names, isolation))

    async def _read(self, names: Sequence[str], isolation: str) -> dict[str, list[Record]]:
        topics = {getattr(self.topics, name): name for name in names}
        consumer = await self.consumer(list(topics), isolation)
        found: dict[str, list[Record]] = {name: [] for name in names}
        try:
            left = set(consumer.assignment())
            last = await consumer.end_offsets(list(left))
            end = time.monotonic() + PATIENCE
            while left := {place for place in left if await consumer.position(place) < last[place]}:
                batches = await consumer.getmany(timeout_ms=200, max_records=50_000)
                for place, records in batches.items():
                    found[topics[place.topic]] += [_record(r) for r in records]
                if batches:
                    end = time.monotonic() + PATIENCE
                assert time.monotonic() < end, f"{left} cannot be read to the end {last}"
        finally:
            await consumer.stop()
        return found

    def outputs(self) -> Outputs:
        """Everything that is committed, when no transaction is open any more."""
        outputs = (*OUTPUTS, "groups", "alerts") if self.settings.groups else OUTPUTS
        names = [getattr(self.topics, name) for name in outputs]
        self.run(settled(self.settings.bootstrap_servers, *names))
        found = self.read("documents", *outputs)
        return Outputs(**found)

    def oracle(self, documents: Iterable[Record]) -> Expected:
        """What the embedded engine says, over the order that was recorded."""
        self._answers += 1
        return answers(self.settings, self.folder / f"oracle-{self._answers}", self.recorded(), documents)

    def recorded(self) -> list[tuple[Sequenced, Frame]]:
        """The frames as they were sequenced."""
        frames = self.read("frames", isolation="read_uncommitted")["frames"]
        return order(self.settings, (record for record in frames if record.partition == 0))

    def check(self) -> Outputs:
        """Compare everything with the oracle."""
        found = self.outputs()
        check(found, self.oracle(found.documents), self.topics.documents)
        return found


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return json.dumps(list(value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(inside)}" for key, inside in value.items()) + "}"
    return json.dumps(str(value))


def _record(read: Any) -> Record:
    return Record(read.partition, read.key, read.value, tuple(read.headers), read.timestamp, read.offset)


def passed_on(verdict: bytes) -> int:
    """Records of `unique` and of the dead letters that come of a verdict: its document, and tombstones."""
    document = b'"kind":"unique"' in verdict or b'"kind":"rejected"' in verdict
    representatives = len(json_of(verdict)["new_representatives"]) if b',"new_representatives":[' in verdict else 0
    return document + (b',"tombstone":true' in verdict) + (b',"supersedes":' in verdict) + representatives


async def ends(client: AIOKafkaConsumer, topic: str) -> dict[TopicPartition, int]:
    """The end of each partition of a topic without transactions: the number of its records."""
    places = await partitions_of(client, topic)
    found: Mapping[TopicPartition, int] = await client.end_offsets(places)
    return dict(found)
