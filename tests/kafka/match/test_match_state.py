"""The match role and its state: a changelog that is trimmed, empty or not the one it was, damage, failures of sends."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from support.kafka.brokers import Make
from support.kafka.match_play import LIMIT, Replies, all_committed, expected, frames, produce
from support.kafka.replica_play import stream
from support.kafka.stages import commit, until, warm
from support.simulation.cluster import Cluster
from support.simulation.pipeline import InOwnLoop
from support.simulation.runner import simulated

from stream_lsh.errors import FormatError
from stream_lsh.kafka.client.connection import client_options
from stream_lsh.kafka.consumer.decisions import Judged
from stream_lsh.kafka.match import unjudged
from stream_lsh.kafka.match.faust_driver import Consumer, ConsumerThread
from stream_lsh.kafka.match.stage import MatchStage
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import keep_running
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.skip import look, skip

pytestmark = pytest.mark.long

SIZE = 16
PATIENT = {"session_timeout_ms": 60_000}
"""Settings where offsets are exact: on a slow machine a member may seem dead, and what it does again counts twice."""


@pytest.fixture(autouse=True)
def in_own_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerThread, "Worker", InOwnLoop)


async def with_match(
    settings: KafkaSettings, work: Callable[[], Awaitable[object]], probe: Probe | None = None
) -> Probe:  # fmt: skip
    """Do `work` while the match role runs in this event loop; raises what ends the role."""
    warm()
    stop, probe = asyncio.Event(), probe or Probe("match")
    running = asyncio.create_task(keep_running(lambda: MatchStage(settings, probe), stop, settings, probe))
    working = asyncio.ensure_future(work())
    await asyncio.wait([running, working], return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    if not working.done():
        working.cancel()
        await running
    await running
    working.result()
    return probe


async def feed(settings: KafkaSettings, log: list[bytes], replies: Replies) -> None:
    """Send frames and wait for the replies, and until their offsets are committed."""
    await produce(settings, log)
    n = len(replies.found[0]) + len(log)
    await replies.read(n)
    await all_committed(settings, n)


@simulated()
async def test_changelog_records_that_faust_loses_are_read_again(
    make: Make, tmp_path: Path, monkeypatch: Any
) -> None:  # fmt: skip
    """Faust clears the changelog's queue whenever it resumes flow; here records of a recovery vanish, the last too."""
    settings = await make(shards=2, **PATIENT)
    log = frames(settings, stream(1, 1600), SIZE)
    replies = Replies(settings)
    real = Consumer.getmany
    lost: set[tuple[int, int]] = set()

    async def getmany(self: Consumer, timeout: float) -> AsyncIterator[Any]:
        async for tp, message in real(self, timeout):
            place = tp.partition, message.offset
            # Of what was written before; should a member have to begin again, it reads what comes now, too.
            ours = tp.topic.endswith("changelog") and place[1] < 80
            if ours and place not in lost and (place[1] % 11 == 3 or place[1] == 79):
                lost.add(place)
            else:
                yield tp, message

    await with_match(settings, lambda: feed(settings, log[:80], replies))
    shutil.rmtree(settings.data_folder)
    monkeypatch.setattr(Consumer, "getmany", getmany)
    await with_match(settings, lambda: feed(settings, log[80:], replies))
    assert len(lost) == 16
    assert replies.found == expected(settings, log, tmp_path)


@simulated()
async def test_recovered_shard_answers_while_another_reads(
    make: Make, tmp_path: Path, monkeypatch: Any
) -> None:  # fmt: skip
    settings = await make(shards=2, **PATIENT)
    log = frames(settings, stream(1, 800), SIZE)
    replies, real, held_back = Replies(settings), Consumer.getmany, {("shards-changelog", 1)}

    async def getmany(self: Consumer, timeout: float) -> AsyncIterator[Any]:
        async for tp, message in real(self, timeout):
            if (tp.topic[-16:], tp.partition) not in held_back:
                yield tp, message

    def look() -> None:
        if len(replies.found[0]) == len(log):
            held_back.clear()

    async def more() -> None:
        await produce(settings, log[40:])
        await replies.read(len(log), look)

    await with_match(settings, lambda: feed(settings, log[:40], replies))
    shutil.rmtree(settings.data_folder / "shard-1")
    monkeypatch.setattr(Consumer, "getmany", getmany)
    await with_match(settings, more)
    assert replies.found == expected(settings, log, tmp_path)


async def write(settings: KafkaSettings, topic: str, *values: bytes) -> None:
    """Records of another program, for shard 0."""
    async with AIOKafkaProducer(**client_options(settings)) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)


def counted(probe: Probe, reason: str) -> float:
    value: float = probe.registry.ignored.labels("match", reason)._value.get()
    return value


@simulated()
async def test_what_is_no_frame_and_what_is_no_change_is_passed_over(make: Make, tmp_path: Path) -> None:
    """With a disk and without; everything else is answered as if it had never been."""
    settings = await make(**PATIENT)
    log = frames(settings, stream(1, 900), SIZE)
    topics, replies = Topics.of(settings), Replies(settings)

    async def more(part: list[bytes], foreign: int) -> None:
        await produce(settings, part)
        await replies.read(len(replies.found[0]) + len(part))
        await all_committed(settings, len(replies.found[0]) + foreign)

    await write(settings, topics.frames, b"hello", log[0][:4] + b"F" + log[0][5:])
    probe = await with_match(settings, lambda: more(log[:20], 2))
    assert counted(probe, "foreign") == 2
    await write(settings, topics.changelog, b"hello", b"")
    await write(settings, topics.frames, b"hello")
    probe = Probe("match")

    async def meanwhile() -> None:
        """Also between the changes of the owner, which reads what nothing else has read, even if no frame follows."""
        await more(log[20:25], 3)
        await write(settings, topics.changelog, b"hello")
        await more(log[25:26], 3)
        await until(lambda: counted(probe, "foreign") == 4, "it is read")

    await with_match(settings, meanwhile, probe)
    shutil.rmtree(settings.data_folder)
    await write(settings, topics.changelog, b"hello")
    probe = await with_match(settings, lambda: more(log[26:], 3))
    assert counted(probe, "foreign") == 4 and counted(probe, "gap") == 0
    assert replies.found == expected(settings, log, tmp_path)


@simulated()
async def test_a_frame_of_other_settings_ends_the_role_until_it_is_skipped(
    make: Make, tmp_path: Path
) -> None:  # fmt: skip
    settings = await make(**PATIENT)
    log, others = frames(settings, stream(1, 320), SIZE), frames(KafkaSettings(threshold=0.7), stream(1, 16), SIZE)
    topics, replies = Topics.of(settings), Replies(settings)

    async def more(part: list[bytes]) -> None:
        await replies.read(len(replies.found[0]) + len(part))
        await all_committed(settings, len(log) + 1)

    await produce(settings, [*log[:10], *others, *log[10:]])
    where = rf"{topics.frames}, partition 0, offset 10: "
    with pytest.raises(FormatError, match=rf"{where}.*other settings.*stream-lsh kafka skip frames 0 10"):
        await with_match(settings, lambda: asyncio.sleep(LIMIT))
    await skip(settings, await look(settings, "frames", 0, 10))
    probe = await with_match(settings, lambda: more(log))
    assert counted(probe, "skipped") == 1 and counted(probe, "gap") == 0
    assert replies.found == expected(settings, log, tmp_path)


@simulated()
async def test_lost_replies_come_again_after_a_restart(
    cluster: Cluster, make: Make, tmp_path: Path, monkeypatch: Any
) -> None:  # fmt: skip
    """What the judge has not completed, whatever was committed; in the stored answers, as the changes are there. One
    consumer looks where that begins, for all shards."""
    settings = await make(shards=2, **PATIENT)
    topics, log = Topics.of(settings), frames(settings, stream(1, 400), SIZE)
    before, replies = Replies(settings), Replies(settings)

    async def all_of_them() -> None:
        await feed(settings, log[:5], before)
        await feed(settings, log[5:], before)

    await with_match(settings, all_of_them)
    await commit(settings, "judge", topics.matches, 10, Judged(4, topics.documents, 5 * SIZE).metadata())
    cluster.lose_tail((topics.matches, 0), 40)
    opened, real = list[Any](), unjudged.reading
    monkeypatch.setattr(unjudged, "reading", lambda *given, **options: opened.append(given) or real(*given, **options))
    await with_match(settings, lambda: replies.read(len(log)))
    assert len(opened) == 1
    assert replies.found == expected(settings, log, tmp_path)


async def test_under_fausts_own_worker(make: Make, prefix: str, tmp_path: Path) -> None:
    """`faust -A stream_lsh.kafka.match.app worker` works, and ends with an error when the role cannot go on."""
    settings = await make()
    log = frames(settings, stream(1, 640), SIZE)
    replies = Replies(settings)
    config = tmp_path / "stream-lsh.toml"
    config.write_text(
        f'bootstrap_servers = "{settings.bootstrap_servers}"\ntopic_prefix = "{prefix}"\n'
        f'data_folder = "{settings.data_folder}"\n'
    )
    command = [sys.executable, "-m", "faust", "-A", "stream_lsh.kafka.match.app", "worker", "-l", "info"]
    caches = {name: os.environ[name] for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR") if name in os.environ}
    environment = {"STREAM_LSH_CONFIG": str(config), "PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **caches}
    process = subprocess.Popen(
        command, env=environment,
        stdout=(tmp_path / "faust.log").open("wb"), stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        await feed(settings, log, replies)
        await produce(settings, frames(KafkaSettings(threshold=0.7), stream(1, 16), SIZE))
        assert await asyncio.to_thread(process.wait, LIMIT) != 0
    finally:
        process.kill()
        process.wait()
    assert "was made with other settings" in (tmp_path / "faust.log").read_text()
    assert replies.found == expected(settings, log, tmp_path)
