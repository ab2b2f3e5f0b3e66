"""The demo on Kafka: topics, a worker, the page and a live feed on a broker that runs, started and ended together."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path
from typing import Any

from stream_lsh.demo.children import Child
from stream_lsh.demo.feed import TEXT_FIELDS, feed_entries
from stream_lsh.demo.findings import OUTPUTS, Findings
from stream_lsh.demo.spread import RULES, make_spread
from stream_lsh.embedded.report import Progress
from stream_lsh.errors import BrokerError
from stream_lsh.kafka.client.connection import explained
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools import topics
from stream_lsh.kafka.tools.broker import KafkaBroker
from stream_lsh.kafka.tools.produce import Feeder, Line, Reader, UnsentLines
from stream_lsh.kafka.tools.tail import tail
from stream_lsh.settings.sources import CONFIG, PREFIX, environment
from stream_lsh.wording import count

SETTINGS: Mapping[str, Any] = {
    "text_field": list(TEXT_FIELDS), "time_field": "ts", "source_field": "source", "groups": True,
    "on_conflict": "update", "deleted_field": "deleted",
}  # fmt: skip
"""Of the pipeline: documents are corrected and withdrawn, and groups raise alerts."""
SECRETS = ("ssl_password", "sasl_password")
CONNECTION = (
    "bootstrap_servers", "security_protocol", "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname",
    "sasl_mechanism", "sasl_username", "sasl_kerberos_service_name", "sasl_oauth_token_file", *SECRETS,
)  # fmt: skip
"""Settings that STREAM_LSH_ variables give the demo. No other variable changes what it shows."""
COUNTS = 5.0  # seconds between two lines of counts
WAITING = 10.0  # seconds between two lines that say what is waited for
LOOK = 0.2  # seconds between two looks at a process that starts
LAST = 1.0  # seconds in which the last outputs are read
KILL, SOON = 60.0, 5.0  # seconds after which a process that does not end is killed; the same where one has failed
FEED = "feed"
ONE = 1000  # documents a second up to which the worker is one process, which starts sooner than several
CHUNK = 10  # lines of the feed that are made at once

Say = Callable[[str], None]


def connection() -> dict[str, str]:
    """What STREAM_LSH_ variables say of the connection to Kafka. Raises UsageError: a variable is no setting."""
    return {name: value for name, value in environment(KafkaSettings).items() if name in CONNECTION}


def settings_in(folder: Path, given: Mapping[str, Any]) -> KafkaSettings:
    """The settings of the demo's pipeline. Its files settings.toml and rules.toml are written to a folder.

    Args:
        given: bootstrap_servers, topic_prefix, and what the connection needs.

    Raises:
        UsageError: the connection is not possible.
    """
    rules = folder / "rules.toml"
    rules.write_text(RULES, encoding="utf-8")
    values = {**SETTINGS, **given, "alerts": str(rules), "data_folder": str(folder / "worker")}
    settings = KafkaSettings().where_not_given(**values)
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in values.items() if name not in SECRETS]
    (folder / "settings.toml").write_text("".join(lines), encoding="utf-8")
    return settings


@dataclass
class Demo:
    """What runs, and what it found.

    Args:
        broker: None if it is not the demo's own. kept: whether topics on a broker that is given stay there.
        seconds: since the start. show: prints a line of what was found. say: prints a line of progress.
    """

    folder: Path
    settings: KafkaSettings
    broker: KafkaBroker | None
    documents: int
    seed: int
    rate: int
    port: int
    kept: bool
    findings: Findings
    seconds: Callable[[], float]
    show: Say
    say: Say
    killed: bool = False
    _children: list[Child] = field(default_factory=list)

    async def run(self, stop: asyncio.Event, kill: asyncio.Event) -> None:
        """Run it all until `stop` is set; end it at once if `kill` is set.

        Raises:
            BrokerError: Kafka cannot be reached, refuses, or has ended.
            ChildEnded: a process has ended by itself.
        """
        with explained(self.settings):
            made = await topics.create(self.settings)
        self.say(f"{count(len(made), 'topic')} of the prefix {self.settings.topic_prefix} are there")
        asked = asyncio.create_task(stop.wait())
        tasks: list[asyncio.Task[Any]] = []
        try:
            tasks += await self._start()
            going_on: set[asyncio.Task[Any]] = {asked, *tasks}
            while not asked.done():
                done, going_on = await asyncio.wait(going_on, return_when=asyncio.FIRST_COMPLETED)
                if failed := [task for task in done if task.exception() is not None]:
                    await self._fail(failed[0])
            self.say("stopping: the worker finishes what it has begun; a second signal does not wait")
        finally:
            asked.cancel()
            await self._end(tasks, kill)
            if self.broker is None and not (self.kept or self.killed):
                await self._delete_topics()

    async def _delete_topics(self) -> None:
        try:
            with explained(self.settings):
                await topics.delete(self.settings)
            self.say(f"the topics of the prefix {self.settings.topic_prefix} are deleted")
        except BrokerError as error:
            self.say(f"the topics of the prefix {self.settings.topic_prefix} are left: {error}")

    async def _fail(self, task: asyncio.Task[Any]) -> None:
        """Raise what is behind an error: a process that has ended takes others with it."""
        await asyncio.sleep(LOOK)
        for child in self._children:
            if child.ended:
                await child.watch()
        if self.broker is not None and self.broker.pid is None:
            await self._watch_broker()
        task.result()

    async def _start(self) -> list[asyncio.Task[Any]]:
        config = str(self.folder / "settings.toml")
        processes = ["--processes", "one"] if self.rate <= ONE else []
        await self._child("worker", ["kafka", "worker", *processes, "--config", config])
        await self._child("page", ["serve", "--kafka", "--config", config, "--port", str(self.port)])
        self.say(f"the feed begins: {count(self.documents, 'document')}, {self.rate} a second")
        work: list[Coroutine[Any, Any, None]] = [child.watch() for child in self._children]
        if self.broker is not None:
            work.append(self._watch_broker())
        work += [self._page(), self._count(), *(self._tail(output) for output in OUTPUTS)]
        return [asyncio.create_task(self._feed(), name=FEED), *map(asyncio.create_task, work)]

    async def _child(self, name: str, arguments: list[str]) -> None:
        log = self.folder / f"{name}.log"
        self._children.append(await Child.start(name, arguments, log, self._environment()))
        self.say(f"the {name} starts: stream-lsh {' '.join(arguments)}")

    def _environment(self) -> dict[str, str]:
        """Of children: without settings, which they have from their file, but with passwords."""
        known = {f"{PREFIX}{name.upper()}" for name in (*KafkaSettings.model_fields, CONFIG)}
        found = {name: value for name, value in os.environ.items() if name not in known}
        for name in SECRETS:
            if (secret := getattr(self.settings, name)) is not None:
                found[f"{PREFIX}{name.upper()}"] = secret.get_secret_value()
        return found

    async def _end(self, tasks: list[asyncio.Task[Any]], kill: asyncio.Event) -> None:
        """End the feed, then the children, in order or at once; what they committed last is still read."""
        failed = any(task.done() and task.exception() is not None for task in tasks)
        for task in tasks:
            if task.get_name() == FEED:
                task.cancel()
        stopping = asyncio.gather(*(child.stop() for child in self._children))
        killing = asyncio.create_task(kill.wait())
        both: list[asyncio.Future[Any]] = [stopping, killing]
        await asyncio.wait(both, timeout=SOON if failed else KILL, return_when=asyncio.FIRST_COMPLETED)
        self.killed = kill.is_set()
        if not stopping.done():
            await asyncio.gather(*(child.kill() for child in self._children))
        await stopping
        killing.cancel()
        if not (self.killed or failed):
            await asyncio.sleep(LAST)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch_broker(self) -> None:
        assert self.broker is not None
        while self.broker.pid is not None:
            await asyncio.sleep(LOOK)
        lines = "\n  ".join([f"Kafka has ended; its log {self.broker.log} ends with", *self.broker.last_lines()])
        raise BrokerError(lines)

    async def _feed(self) -> None:
        def report(sent: Progress) -> None:
            self.findings.sent = sent.documents

        sent = await Feeder(self.settings, (), rate=self.rate, report=report, lines=self._lines()).run()
        report(sent)
        self.say(f"the feed has ended: {count(sent.documents, 'document')}. The page stays until Ctrl-C")

    def _lines(self) -> Iterator[list[Line]]:
        reader = Reader(self.settings, None, UnsentLines())
        chunk: list[Line] = []
        for number, item in enumerate(news(self.documents, self.seed), 1):
            key, value = reader.record(item.line)
            self.findings.send(item.id, item.title)
            chunk.append(Line(key, value, "the feed", number))
            if len(chunk) == CHUNK:
                yield chunk
                chunk = []
        yield chunk

    async def _page(self) -> None:
        """Say where the page is, once it is there."""
        while not await asyncio.to_thread(self._ready):
            await asyncio.sleep(LOOK)
        config = self.folder / "settings.toml"
        self.say(f"the page is at http://127.0.0.1:{self.port} (Ctrl-C ends everything)")
        self.say(f"from other terminals: stream-lsh kafka tail verdicts --config {config}")

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health/ready")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    async def _count(self) -> None:
        """Say every few seconds what was found; before that, what is waited for."""
        waiting = time.monotonic()
        while True:
            await asyncio.sleep(COUNTS)
            if text := self.findings.counts():
                self.say(text)
            if self.findings.first_pair is None and time.monotonic() - waiting >= WAITING:
                waiting = time.monotonic()
                said = self._children[0].last_lines(1)
                self.say("waiting for the first pair" + (f"; the worker says: {said[0]}" if said else ""))

    async def _tail(self, output: str) -> None:
        found = tail(self.settings, output, from_beginning=True)
        try:
            async for line in found:
                first = self.findings.first_pair
                text = self.findings.take(output, line, self.seconds())
                if first is None and self.findings.first_pair is not None:
                    self.say("the first pair")
                if text is not None:
                    self.show(text)
        finally:
            with suppress(Exception):  # Kafka may be away by now
                await found.aclose()


APART = 9 * 3_600_000  # ms from the beginning of one story that spreads to that of the next; each takes seven hours


@dataclass(frozen=True)
class Item:
    """One line of the feed, without its newline; id and title where it has them, and its place in time, in ms."""

    line: bytes
    id: str | None
    title: str
    ts: int


def news(documents: int, seed: int) -> Iterator[Item]:
    """So many lines, the same on every machine, made one by one.

    Raises:
        ValueError: fewer documents than a feed needs.
    """
    return itertools.islice(merge(_feed(documents, seed), _spreading(seed), key=lambda item: item.ts), documents)


def _feed(documents: int, seed: int) -> Iterator[Item]:
    now = 0
    for entry in feed_entries(documents, seed):
        now = max(now, entry.document.get("ts", 0))  # a line that is redelivered has an earlier time
        yield Item(entry.line, entry.id, entry.document.get("title", ""), now)


def _spreading(seed: int) -> Iterator[Item]:
    """One story after the other, without end. The ids of each are its own."""
    for number in itertools.count():
        for entry in make_spread(seed + number):
            ts = entry.ts + number * APART
            record = {**entry.record, "id": f"{entry.record['id']}-{number}", "ts": ts}
            yield Item(json.dumps(record, ensure_ascii=False).encode(), record["id"], record.get("title", ""), ts)
