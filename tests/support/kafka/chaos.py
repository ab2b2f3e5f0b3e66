"""Chaos: real documents flow while workers are killed, frozen, added and removed, their disks deleted, connections cut,
sends refused and the broker restarted. In the end every output is what the embedded engine says to the recorded order;
with updates or a window, of random histories, verdicts and groups are also what the plain models say.

The seed fixes what happens and when; each event is told on standard error.
"""

import asyncio
import heapq
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.names import wanted
from stream_lsh.kafka.tools.broker import KafkaBroker
from support.kafka import measures, plain
from support.kafka.feeding import POSTS, Feed, feed_of, lines, records_of
from support.kafka.group_play import RULES
from support.kafka.harness import Pipeline, Worker, until
from support.kafka.match_play import log_ends
from support.kafka.oracle import json_of
from support.kafka.proxy import Proxied, Proxy

PARTITIONS, SHARDS, SEGMENT = 4, 3, 350
SESSION = 6.0  # seconds
WINDOW = "32m"  # 480 documents of a history are in it, a segment of 60
MOST_WORKERS = 5
PAUSE = (0.5, 4.5)  # seconds between two events
LEAVE = 180.0  # seconds that a worker may take to drain and end
CONFIGURE = 60.0  # seconds that changing a topic may take: it may have to wait for the broker
KINDS = ("one", "groups", "one", "roles")  # processes of the workers, in turn
TIGHT = ("signatures", "frames", "matches", "changelog", "verdicts", "pairs", "unique", "dead_letters")
OF_GROUPS = ("memberships", "groups", "group_changelog")


class Chaos:
    """One run. chance: from the seed; say: where events are told."""

    def __init__(self, pipeline: Pipeline, broker: KafkaBroker, proxy: Proxy, chance: random.Random) -> None:
        self.pipeline = pipeline
        self.broker = broker
        self.proxy = proxy
        self.chance = chance
        self.counts: Counter[str] = Counter()
        self._began = time.monotonic()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._deck: list[Callable[[], None]] = []
        self._busy: set[str] = set()  # workers that something is being done to
        self._pinched: set[str] = set()

    def say(self, text: str) -> None:
        """One line an event, with the seconds since the beginning."""
        line = f"chaos {time.monotonic() - self._began:6.1f} s: {text}"
        print(line, file=sys.stderr, flush=True)
        with (self.pipeline.folder / "events.log").open("a") as log:
            log.write(line + "\n")

    def begin(self) -> None:
        """The first three workers."""
        for _ in range(3):
            self._start_another()

    def go(self, seconds: float, feed: Feed) -> None:
        """Let things happen for so long, and until all kinds of them have happened and the feed is through."""
        end = time.monotonic() + seconds
        kinds = len(self._kinds())
        due = time.monotonic() + self.chance.uniform(*PAUSE)
        while time.monotonic() < end or self.counts.total() < kinds or feed.is_alive():
            now = time.monotonic()
            if self._later and self._later[0][0] <= now:
                heapq.heappop(self._later)[2]()
            elif due <= now:
                self._next()
                due = time.monotonic() + self.chance.uniform(*PAUSE)
            else:
                time.sleep(0.05)
            self._start_refused()
            self.pipeline.check_live(self._busy)

    def _start_refused(self) -> None:
        """Workers that have come to a topic that takes only tiny records refuse it, rightly; they are tried again."""
        for worker in self.pipeline.workers:
            code = worker.process.poll() if worker.process is not None else None
            if code == 6 and worker.name not in self._busy and "has max.message.bytes" in worker.said(500):
                self.say(f"{worker.name} has refused a topic")
                self._restart(worker, 1)

    def heal(self) -> None:
        """Undo what is still undone."""
        self.say("healing")
        while self._later:
            heapq.heappop(self._later)[2]()
            time.sleep(0.05)  # who is leaving comes again
        assert self.broker.pid is not None
        self._start_refused()
        while self._later:
            heapq.heappop(self._later)[2]()
            time.sleep(0.05)
        for worker in self.pipeline.workers[:3]:
            if not worker.running:
                worker.start()

    def _kinds(self) -> list[Callable[[], None]]:
        return [
            self.kill, self.kill, self.kill_a_process, self.kill_a_process, self.freeze, self.freeze, self.join,
            self.leave, self.restart_broker, self.delete_disk, self.cut, self.cut_some, self.stall, self.refuse,
            self.pinch, self.pinch,
        ]  # fmt: skip

    def _next(self) -> None:
        # A deck of cards: everything happens in each round, in another order.
        if not self._deck:
            self._deck = self._kinds()
            self.chance.shuffle(self._deck)
        event = self._deck.pop()
        self.counts[event.__name__] += 1
        event()

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), what))

    def _victim(self, wanted: Callable[[Worker], bool] = lambda _: True) -> Worker | None:
        dice = self.chance.random()  # drawn in any case, so that the numbers behind it stay the same
        able = [w for w in self.pipeline.workers if w.running and w.name not in self._busy and wanted(w)]
        return able[int(dice * len(able))] if able else None

    def _start_another(self) -> None:
        number = len(self.pipeline.workers)
        worker = self.pipeline.worker(processes=KINDS[number % len(KINDS)])
        self.say(f"{worker.name} joins ({worker.processes})")

    def _restart(self, worker: Worker, seconds: float) -> None:
        self._busy.add(worker.name)

        def start() -> None:
            self.say(f"{worker.name} starts again")
            worker.start()
            self._busy.discard(worker.name)

        self._after(seconds, start)

    def kill(self) -> None:
        seconds, worker = self.chance.uniform(0, 4), self._victim()
        if worker is not None:
            self.say(f"{worker.name} is killed")
            worker.kill()
            self._restart(worker, seconds)

    def kill_a_process(self) -> None:
        """One process of a worker; its supervisor has to start it again."""
        dice, worker = self.chance.random(), self._victim(lambda worker: worker.processes != "one")
        children = worker.pids()[1:] if worker is not None else []
        if worker is not None and children:
            self.say(f"a process of {worker.name} is killed")
            try:
                os.kill(children[int(dice * len(children))], signal.SIGKILL)
            except ProcessLookupError:
                self.say("it had just ended")

    def freeze(self) -> None:
        """Past its session timeout: it comes back as a zombie."""
        seconds, worker = SESSION + self.chance.uniform(1, 4), self._victim()
        if worker is None:
            return
        self.say(f"{worker.name} is frozen for {seconds:.1f} s")
        worker.signal(signal.SIGSTOP)
        self._busy.add(worker.name)

        def thaw() -> None:
            self.say(f"{worker.name} comes back")
            worker.signal(signal.SIGCONT)
            self._busy.discard(worker.name)

        self._after(seconds, thaw)

    def join(self) -> None:
        idle = [worker for worker in self.pipeline.workers if not worker.running and worker.name not in self._busy]
        if idle:
            self.say(f"{idle[0].name} joins again")
            idle[0].start()
        elif len(self.pipeline.workers) < MOST_WORKERS:
            self._start_another()

    def leave(self) -> None:
        # One that has begun: nothing may wait for a worker here while the network is frozen or the broker is away.
        worker = self._victim(lambda worker: worker.started)
        if worker is None:
            return
        self.say(f"{worker.name} is asked to leave")
        asked = time.monotonic()
        worker.terminate()
        self._busy.add(worker.name)

        def gone() -> None:
            if worker.running and time.monotonic() < asked + LEAVE:
                self._after(0.5, gone)
                return
            code = worker.wait(1)
            self.say(f"{worker.name} has left, code {code}")
            assert code == 0, worker.said()
            self._busy.discard(worker.name)
            if sum(w.running for w in self.pipeline.workers) < 3:
                worker.start()

        self._after(6, gone)

    def delete_disk(self) -> None:
        seconds, worker = self.chance.uniform(0, 2), self._victim(lambda worker: "match" in worker.roles)
        if worker is not None:
            self.say(f"{worker.name} is killed and loses its disk")
            worker.kill()
            shutil.rmtree(self.pipeline.data(worker), ignore_errors=True)
            self._restart(worker, seconds)

    def restart_broker(self) -> None:
        """Kill it, or end it in order, and start it again."""
        seconds, kill = self.chance.uniform(0, 2), self.chance.random() < 0.5
        self.say(f"the broker is {'killed' if kill else 'stopped'}, down for {seconds:.1f} s")
        if kill:
            self.broker.kill()
        else:
            self.broker.stop()
        time.sleep(seconds)
        self.broker.start()
        self.say("the broker is back")

    def cut(self) -> None:
        self.say(f"{self.proxy.cut()} connections are cut")

    def cut_some(self) -> None:
        """Again and again for a while, so that single sends fail."""
        share, times = self.chance.uniform(0.1, 0.5), self.chance.randrange(5, 15)
        self.say(f"connections are cut {times} times, each with probability {share:.1f}")
        for number in range(times):
            self._after(0.2 * number, lambda: void(self.proxy.cut(share)))

    def stall(self) -> None:
        seconds = self.chance.uniform(0.5, SESSION + 2)
        self.say(f"nothing goes over the network for {seconds:.1f} s")
        self.proxy.freeze()
        self._after(seconds, self.proxy.thaw)

    def refuse(self) -> None:
        seconds = self.chance.uniform(0.5, 3)
        self.say(f"no connections for {seconds:.1f} s")
        self.proxy.refuse()
        self.proxy.cut()
        self._after(seconds, lambda: self.proxy.refuse(False))

    def pinch(self) -> None:
        """For a moment the broker takes only tiny records of a topic: sends are refused for good, the next may land."""
        tight = TIGHT + OF_GROUPS if self.pipeline.settings.groups else TIGHT
        name, seconds = self.chance.choice(tight), self.chance.uniform(0.3, 2)
        largest = self.chance.choice((100, 1000, 4000, 20_000))
        if name in self._pinched:
            return
        self.say(f"the topic {name} takes only {largest} bytes for {seconds:.1f} s")
        self._changed(name, seconds, {"max.message.bytes": str(largest)})

    def _changed(self, name: str, seconds: float, configs: dict[str, str]) -> None:
        self._pinched.add(name)
        self._configure(name, configs)

        def back() -> None:
            self._configure(name, {})
            self._pinched.discard(name)

        self._after(seconds, back)

    def _configure(self, name: str, more: dict[str, str]) -> None:
        topic = getattr(self.pipeline.topics, name)
        (spec,) = [spec for spec in wanted(self.pipeline.settings) if spec.name == topic]
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, spec.configs | more)

        async def change() -> None:
            end = time.monotonic() + CONFIGURE
            while True:
                try:
                    async with admin(self.pipeline.settings) as client:
                        (response,) = await client.alter_configs([resource])
                    ((code, *_),) = response.resources
                    if code:
                        raise for_code(code)(f"configs of {topic}")
                    return
                except (KafkaError, OSError):
                    if time.monotonic() > end:
                        raise
                    await asyncio.sleep(0.5)

        self.pipeline.run(change())


def void(_: object) -> None:
    """Takes a result that nobody wants."""


def documents(data: Path, n: int, seed: int) -> Iterator[bytes]:
    """Real posts with bad and repeated ones among them; more than there are: again, under other ids."""
    found = feed_of(lines(data, POSTS[0], n), seed)
    for number in range(-(-n // len(found))):
        for value in found[: n - number * len(found)]:
            yield value.replace(b'"id": "', b'"id": "%d-' % number) if number else value


def run(
    data: Path, folder: Path, proxied: Proxied, seed: int, seconds: float, n: int, *, measure: str | None, shards: int,
    compare_with: str, updates: bool = False, window: bool = False, groups: bool = False, erase: bool = False,
) -> Counter[str]:  # fmt: skip
    """One run of chaos; what has happened how often.

    Args:
        data: the folder of real documents. n: how many documents. measure: documents are of another one, which no
            model judges, without windows. updates: documents are replaced and deleted, too. window: of some documents,
            by their times. groups: are kept, with alerts. erase: what goes is erased at once, and the changelog cleaned
            again and again.

    Raises:
        AssertionError: an output is not what it has to be, or a worker has given up, or nothing moves any more.
    """
    broker, proxy = proxied.broker, proxied.proxies[0]
    given: dict[str, Any] = {
        "decision_lag": 1000 if compare_with == "kept" and shards > 1 else 4000, "frame_documents": 200,
    }  # fmt: skip
    modelled, changes = measure is None and (updates or window), 0.05 * updates
    if modelled:
        records = plain.history(n, PARTITIONS, seed)
        given |= {**plain.SURE, "time_field": "ts", "retention_hours": 168 + n * plain.STEP // 3_600_000}
    elif measure is not None:
        records = records_of(measures.feed(measure, n, seed, changes), PARTITIONS, seed)
        given |= {**measures.SETTINGS[measure], "text_field": ("text",)}
    else:
        records = records_of(list(documents(data, n, seed)), PARTITIONS, seed)
    if window:  # so that segments go while things happen, and so do the answers that keep them: those of 301 frames
        given |= {"decision_lag": 300, "frame_documents": 8, "window": WINDOW}
    if updates:
        given |= {"on_conflict": "update", "deleted_field": "deleted", "key_is_id": "string"}
    if updates and compare_with == "kept":  # as often as it may, once a minute
        given["min_cleanable_bytes"] = 1
    if erase:
        given["erase_hours"] = 0
    if groups:
        rules = folder / "rules.toml"
        rules.write_text(RULES)
        given |= {"groups": True, "source_field": "outlet", "alerts": rules}
    proxy.delay, proxy.jitter = 0.0005, 0.002
    with Pipeline(
        broker.bootstrap, f"chaos-{seed}-{time.time_ns() % 10**6}", folder, through=f"127.0.0.1:{proxy.port}",
        partitions=PARTITIONS, shards=shards, segment_documents=SEGMENT,
        session_timeout_ms=int(SESSION * 1000), transaction_timeout_ms=5000,
        memtable_documents=1000, give_up_seconds=300, compare_with=compare_with,
        standbys=seed % 2, **given,
    ) as pipeline:  # fmt: skip
        chaos = Chaos(pipeline, broker, proxy, random.Random(seed))
        chaos.say(f"seed {seed}, {len(records)} documents in {seconds:.0f} s")
        try:
            chaos.begin()
            feed = Feed(broker.bootstrap, pipeline.topics.documents, records, len(records) / (seconds * 0.8))
            feed.start()
            chaos.go(seconds, feed)
            chaos.say(f"{feed.end()} documents were produced")
            chaos.heal()
            pipeline.finish()
            chaos.say("everything has a verdict")

            def changelogs() -> list[tuple[int, int]]:
                return pipeline.run(log_ends(pipeline.settings, pipeline.topics.changelog, shards))

            if erase:  # a cycle takes a moment in which nobody is killed
                until(lambda: all(begin > 0 for begin, _ in changelogs()), why=pipeline.report("nothing was cleaned"))
            stopped = [worker for worker in pipeline.workers if worker.running]
            pipeline.stop(*stopped)
            chaos.say("all workers have ended")
            found = pipeline.check()
            assert len(found.documents) >= 0.9 * len(records)
            kinds = {json_of(record.value)["kind"] for record in found.verdicts}
            assert ({"deleted", *(["outdated"] if modelled else [])} <= kinds) == updates, kinds
            if modelled:
                plain.check(pipeline.settings, pipeline.recorded(), found)
                chaos.say("the models say so, too")
            begins = changelogs()
            chaos.say(f"the changelogs begin and end at {begins}")
            assert not (window or erase) or all(begin > 0 for begin, _ in begins)
            chaos.say(
                f"all is right: {len(found.documents)} documents, {len(found.verdicts)} verdicts, "
                f"{len(found.pairs)} pairs, {len(found.unique)} unique, {len(found.dead_letters)} dead letters; "
                + ", ".join(f"{name} {times}" for name, times in sorted(chaos.counts.items()))
            )
        except BaseException as error:
            chaos.say(f"FAILED: seed {seed}; logs in {folder}: {error!r}")
            raise
        finally:
            proxy.delay = proxy.jitter = 0.0
    return chaos.counts
