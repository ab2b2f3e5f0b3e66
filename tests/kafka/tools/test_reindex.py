"""Rebuilding under a new prefix: what there is to do, when it is done or cannot be told, topics and positions."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from support.kafka.brokers import Make, settings_for
from support.kafka.feeding import records_of
from support.kafka.harness import Pipeline
from support.kafka.proxy import Proxied
from support.kafka.sequence_play import frame
from support.kafka.stages import PATIENCE, commit, delete_before, send, transaction, until
from support.long_form import rotating
from support.simulation.runner import simulated

from stream_lsh.demo.feed import feed_lines
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import ROLES, KafkaSettings
from stream_lsh.kafka.tools import reindex
from stream_lsh.kafka.tools.reindex import Goal, _anything, follow, prepare, target
from stream_lsh.kafka.tools.topics import create, show
from stream_lsh.wire.frames import STARTS
from stream_lsh.wire.set_back import SetBack


def test_what_there_is_to_do() -> None:
    goal = Goal({0: 0, 1: 100, 2: 7}, {0: 50, 1: 150, 2: 7})
    assert goal.total == 100 and goal.deleted == 107
    assert goal.done({}) == 0
    assert goal.open({}) == {0: 0, 1: 100}
    assert goal.done({0: 50, 1: 120}) == 70
    assert goal.open({0: 50, 1: 120}) == {1: 120}
    # Documents that came later count for nothing here.
    assert goal.done({0: 90, 1: 150, 2: 30}) == 100
    assert not goal.open({0: 90, 1: 150, 2: 30})


def test_nothing_to_do() -> None:
    assert not Goal({0: 5}, {0: 5}).open({}) and Goal({0: 5}, {0: 5}).total == 0


def test_the_new_settings() -> None:
    old = KafkaSettings(
        topic_prefix="news", shards=4, compare_with="all", http_port=9100, data_folder=Path("/var/lib/shards")
    )
    new = target(old, "news-2")
    assert Topics.of(new).documents == "news.documents" and Topics.of(new).frames == "news-2.frames"
    assert new.data_folder == Path("/var/lib/shards-news-2") and new.http_port is None
    assert new.shards == 4 and new.fingerprint == old.fingerprint
    assert target(old, "news-2", "elsewhere").data_folder == Path("elsewhere")
    assert target(old.model_copy(update={"data_folder": Path("/")}), "two").data_folder == Path("/two")
    named = KafkaSettings(topic_prefix="news", documents_topic="crawl")
    assert Topics.of(target(named, "news-2")).documents == "crawl"


def test_a_relative_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for given, found in ((".", "here-two"), ("data", "here/data-two")):
        settings = KafkaSettings(topic_prefix="one", data_folder=Path(given))
        assert target(settings, "two").data_folder == tmp_path / found


@pytest.mark.parametrize(
    ("prefix", "words"), [("news", "give a new one"), ("new prefix", "letters, digits"), ("", "letters, digits")]
)
def test_a_prefix_that_cannot_be(prefix: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        target(KafkaSettings(topic_prefix="news"), prefix)


def test_the_old_documents_may_not_be_an_output_of_the_new() -> None:
    old = KafkaSettings(topic_prefix="a", documents_topic="b.unique")
    with pytest.raises(UsageError, match=r"b\.unique"):
        target(old, "b")


@pytest.fixture
def old(broker: Any, prefix: str) -> KafkaSettings:
    settings = KafkaSettings(bootstrap_servers=broker.bootstrap, topic_prefix=prefix, partitions=2)
    asyncio.run(create(settings))
    return settings


@simulated()
async def test_the_topics_are_made_and_the_work_is_known(old: KafkaSettings) -> None:
    new = target(old, f"{old.topic_prefix}-2", None)
    await send(old, Topics.of(old).documents, [b"{}"] * 5, partition=1)
    goal = await prepare(new)
    assert goal.begins == {0: 0, 1: 0} and goal.ends == {0: 0, 1: 5} and goal.total == 5
    states = {state.wanted.name: state for state in await show(new)}
    assert states[Topics.of(new).verdicts].partitions == 2 and states[Topics.of(new).frames].partitions == 1
    assert await prepare(new) == goal  # again, as after an interruption


@simulated()
async def test_it_is_done_when_everything_is_passed_on(old: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a transaction takes an offset, too: nobody ever gets there."""
    monkeypatch.setattr(reindex, "LOOK", 0.05)
    new = target(old, f"{old.topic_prefix}-2", None)
    documents = Topics.of(old).documents
    await send(old, documents, [b"{}"] * 4)
    await transaction(old, documents, 1, *[b"{}"] * 3)
    goal = await prepare(new)
    assert goal.ends == {0: 4, 1: 4}
    done: list[int] = []
    watching = asyncio.create_task(follow(new, goal, asyncio.Event(), done.append))
    while not done:
        await asyncio.sleep(0.05)
    await commit(new, "forward", documents, 4)
    await commit(new, "forward", documents, 2, partition=1)
    while 6 not in done:
        await asyncio.sleep(0.05)
    await asyncio.sleep(3)
    assert not watching.done()
    await commit(new, "forward", documents, 3, partition=1)
    assert await asyncio.wait_for(watching, PATIENCE)
    assert done[0] == 0 and done[-1] == 7


@simulated()
async def test_it_can_be_stopped(old: KafkaSettings) -> None:
    new = target(old, f"{old.topic_prefix}-2", None)
    await send(old, Topics.of(old).documents, [b"{}"])
    stop = asyncio.Event()
    assert not await follow(new, await prepare(new), stop, lambda done: stop.set())


@simulated()
async def test_other_work_under_the_prefix_is_refused(old: KafkaSettings) -> None:
    new = target(old, f"{old.topic_prefix}-2", None)
    await prepare(new)
    await send(new, Topics.of(new).signatures, [frame(new, (0, 0, 1, STARTS))])
    await prepare(new)
    await send(new, Topics.of(new).signatures, [SetBack(1).encode()])  # an order has no settings to compare
    await prepare(new)
    await send(new, Topics.of(new).signatures, [frame(new, (0, 0, 1, STARTS))])
    other = KafkaSettings.model_validate(
        {name: getattr(new, name) for name in KafkaSettings.model_fields} | {"threshold": 0.5}
    )
    with pytest.raises(StoreError, match=r"is in use.*Give another --to-prefix"):
        await prepare(other)


@simulated()
def test_without_documents(broker: Any, prefix: str) -> None:
    settings = KafkaSettings(bootstrap_servers=broker.bootstrap, topic_prefix=prefix)
    with pytest.raises(StoreError, match=f"no topic {prefix}.documents"):
        asyncio.run(prepare(target(settings, f"{prefix}-2", None)))


@pytest.fixture
async def settings(make: Make) -> KafkaSettings:
    return await make(partitions=2)


async def anything(settings: KafkaSettings, goal: Goal, positions: dict[int, int]) -> bool:
    return await _anything(settings, goal, positions, asyncio.Event())


@simulated()
async def test_marks_are_no_documents(settings: KafkaSettings) -> None:
    await transaction(settings, Topics.of(settings).documents, 0, b"a", b"b")
    await transaction(settings, Topics.of(settings).documents, 1, b"c")
    goal = Goal({0: 0, 1: 0}, {0: 3, 1: 2})
    assert not await anything(settings, goal, {0: 2, 1: 1})
    assert await anything(settings, goal, {0: 2, 1: 0})
    assert await anything(settings, goal, {0: 1})
    assert not await anything(settings, Goal({0: 0}, {0: 1}), {0: 1})


@simulated()
async def test_no_answer_is_not_the_end(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a partition without a leader: nothing comes, and no error."""
    await transaction(settings, Topics.of(settings).documents, 0, b"a", b"b")

    async def nothing(*_: object, timeout_ms: int, **__: object) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(timeout_ms / 1000)
        return {}

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", nothing)
    assert await anything(settings, Goal({0: 0}, {0: 3}), {0: 0})


@simulated()
async def test_deleted_documents_are_reported_and_are_not_the_end(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reindex, "LOOK", 0.02)
    await transaction(settings, Topics.of(settings).documents, 0, b"a", b"b", b"c")
    await delete_before(settings, Topics.of(settings).documents, 2)

    stop = asyncio.Event()
    watching = asyncio.create_task(follow(settings, Goal({0: 0}, {0: 4}), stop, lambda _: None))
    reported = "were deleted before they were known to be done"
    await until(lambda: watching.done() or caplog.text.count(reported) > 1, "it is told twice")
    assert not watching.done()
    stop.set()
    assert not await watching
    assert f"{settings.topic_prefix}.documents at offset 0 of partition 0 were deleted" in caplog.text


@simulated()
async def test_looking_can_be_stopped(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    await transaction(settings, Topics.of(settings).documents, 0, b"a")
    stop = asyncio.Event()

    async def look(*_: object, **__: object) -> dict[TopicPartition, list[Any]]:
        stop.set()
        return {}

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", look)
    assert await _anything(settings, Goal({0: 0}, {0: 100}), {0: 0}, stop)


@pytest.mark.parametrize("number", rotating([signal.SIGINT, signal.SIGTERM], 1))
async def test_a_second_signal_ends_it_without_an_answer(
    proxied: Proxied, prefix: str, tmp_path: Path, number: int
) -> None:
    proxy = proxied.proxies[0]
    settings = settings_for(proxied.broker, prefix, tmp_path, partitions=1)
    await create(settings)
    words = ["kafka", "reindex", "--to-prefix", f"{prefix}-2", "--topic-prefix", prefix, "--log-level", "info"]
    words += ["--bootstrap-servers", f"127.0.0.1:{proxy.port}"]

    await send(settings, f"{prefix}.documents", [b"{"])
    running = start(tmp_path, *words)
    try:
        assert running.stderr is not None
        said = ""
        while "started sequence" not in said:
            line = running.stderr.readline()
            said += line
            assert line, said
        proxy.freeze()
        running.send_signal(number)
        while "stopping" not in said:
            line = running.stderr.readline()
            said += line
            assert line, said
        running.send_signal(number)
        said += running.stderr.read()
        assert running.wait(PATIENCE) == 128 + number, said
        assert "Traceback" not in said and "run the same command again to go on" in said
    finally:
        proxy.thaw()
        running.kill()
        running.communicate()


DOCUMENTS = 1500
GIVEN: dict[str, Any] = {"partitions": 2}


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stream_lsh.cli", *words], stderr=subprocess.PIPE, text=True, cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("STREAM_LSH_")},
    )  # fmt: skip


def test_rebuild_and_go_on(broker: Any, prefix: str, tmp_path: Path) -> None:
    lines = [line.strip() for line in feed_lines(DOCUMENTS + 200, 5)]
    first, more = lines[:DOCUMENTS], lines[DOCUMENTS:]
    with Pipeline(broker.bootstrap, prefix, tmp_path, **GIVEN) as old:
        old.produce(records_of(first, 2, 1))
        config = old.worker(start=False).config
    words = ["kafka", "reindex", "--config", str(config), "--to-prefix", f"{prefix}-2"]
    words += ["--compare-with", "all", "--shards", "2"]
    run = start(tmp_path, *words, "--log-level", "info")
    assert run.stderr is not None
    said = ""
    for line in run.stderr:
        said += line
        if "answering for" in line:
            run.send_signal(signal.SIGINT)
            break
    said += run.stderr.read()  # not communicate(): it does not know what was read ahead
    run.wait(PATIENCE)
    # It may have been fast enough.
    assert (run.returncode == 130 and "run the same command again to go on" in said) or "To switch" in said

    run = start(tmp_path, *words)
    _, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0 and f"{len(first):,} documents judged" in said, said
    assert f"stream-lsh kafka worker --topic-prefix {prefix}-2" in said

    given = {**GIVEN, "compare_with": "all", "shards": 2, "documents_topic": old.topics.documents}
    new = Pipeline(broker.bootstrap, f"{prefix}-2", tmp_path / "new", **given)
    new.folder.mkdir()
    with new:
        worker = new.worker(ROLES, data_folder=tmp_path / f"worker-0-data-{prefix}-2")
        new.produce(records_of(more, 2, 2))
        new.finish()
        worker.terminate()
        assert worker.wait() == 0, new.report()
        assert len(new.check().documents) == len(lines)
