"""A copy of all shards answers as the embedded index does as of frames that it names, and refuses what it cannot."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from support.kafka.brokers import Make
from support.kafka.cleaning_play import Changelog, Owner
from support.kafka.pipe import BLOCK, Pipe
from support.kafka.replica_play import UPDATES, WINDOW, each_frame, feed_of, frames, settings_of
from support.kafka.stages import KEY, commit, delete_before, send, transaction, until
from support.long_form import rotating
from support.simulation.runner import simulated

from stream_lsh.documents.builder import columns
from stream_lsh.embedded.engine import checked
from stream_lsh.errors import FormatError, StoreError, UsageError
from stream_lsh.index.reader import IndexReader
from stream_lsh.judging.verdicts import verdict_lines
from stream_lsh.kafka.client.connection import client_options
from stream_lsh.kafka.consumer.decisions import Judged
from stream_lsh.kafka.lookup import alignment, lookup
from stream_lsh.kafka.lookup.alignment import Alignment, Behind, Lag
from stream_lsh.kafka.lookup.lookup import Lookup, NotReady
from stream_lsh.kafka.lookup.reader import FrameReader, provisional_from
from stream_lsh.kafka.match.copy import Copy
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.bases import BEGINS, Base, Mark
from stream_lsh.wire.changes import Change
from stream_lsh.wire.decisions import Decisions
from stream_lsh.wire.parts import Place, cut

GIVEN = {
    "shards": 3, "compare_with": "kept", "decision_lag": 2 * BLOCK, "frame_documents": BLOCK, "max_matches": 0,
    "memtable_documents": 200, **UPDATES,
}  # fmt: skip


class Play:
    """A pipeline that has judged a log, of which the topics have only what was written."""

    def __init__(self, settings: KafkaSettings, folder: Path, n: int = 420) -> None:
        self.settings, self.topics = settings, Topics.of(settings)
        self.documents = feed_of(settings, n)
        log = frames(settings, self.documents)
        self.expected = each_frame(settings, log, folder / "embedded", self.documents)
        self.pipe = Pipe(settings, log, folder / "pipe")
        for sequenced in self.pipe.log:
            self.pipe.step(sequenced)
        self.pipe.close()
        self.offsets = [sequenced.offset for sequenced in self.pipe.log]

    async def changes(self, first: int, last: int, shards: Any = None) -> None:
        for shard in range(self.settings.shards) if shards is None else shards:
            await send(self.settings, self.topics.changelog, self.pipe.changes[shard][first:last], partition=shard)

    async def judged(self, first: int, last: int) -> None:
        if self.settings.late:
            await transaction(self.settings, self.topics.decisions, 0, *self.pipe.decided[first:last])
        text = Judged(self.offsets[last - 1], self.topics.documents, 10 * last).metadata()
        await commit(self.settings, "judge", self.topics.matches, last, text)

    async def write(self, first: int, last: int) -> None:
        await self.changes(first, last)
        await self.judged(first, last)

    def ask(self, reader: IndexReader) -> list[bytes]:
        return verdict_lines(checked(reader, columns(self.documents)).judgement)

    @asynccontextmanager
    async def following(self, copy: Lookup) -> AsyncIterator[None]:
        self.task = asyncio.create_task(copy.follow(lambda _: None))
        try:
            yield
        finally:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def is_as_of(self, copy: Lookup, at: int) -> None:
        """Wait until a copy answers as of a frame. All its answers are those of the embedded index."""

        async def reached() -> bool:
            if self.task.done():
                self.task.result()
            with suppress(NotReady):
                lines, as_of = await copy.ask(self.ask)
                assert lines == self.expected[self.offsets.index(as_of.frame)]
                return as_of.frame == self.offsets[at]
            return False

        await until(reached, f"the copy answers as of frame {at}")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(lookup, "FRAME_SECONDS", 0.0)
    monkeypatch.setattr(lookup, "SHARE", 0.0)


@simulated()
async def test_answers_follow_the_pipeline(make: Make, tmp_path: Path) -> None:
    """Not before the decisions on a frame are committed, and not before all shards have it."""
    settings = await make(**GIVEN)
    play, copy = Play(settings, tmp_path), Lookup(settings, tmp_path / "copy")
    await play.write(0, 6)
    async with play.following(copy):
        await play.is_as_of(copy, 5)
        assert (copy.behind.documents, copy.behind.seconds) == (0, 0.0)
        await play.changes(6, 9)
        async with AIOKafkaProducer(**client_options(settings), transactional_id="aborted") as producer:
            await producer.begin_transaction()
            await producer.send(play.topics.decisions, play.pipe.decided[6], partition=0)
            await producer.abort_transaction()
        await asyncio.sleep(0.5)
        await play.is_as_of(copy, 5)
        await play.judged(6, 9)
        await play.is_as_of(copy, 8)
        await play.changes(9, 12, [0, 1])
        await play.judged(9, 12)
        await until(lambda: copy.behind.documents == 30 and copy.behind.seconds > 0, "it knows that it is behind")
        await play.is_as_of(copy, 8)
        await play.changes(9, 12, [2])
        await play.is_as_of(copy, 11)


@simulated()
async def test_folder_is_kept_and_rebuilt(make: Make, tmp_path: Path) -> None:
    """A copy continues where it ended; one that was lost is built again; two processes do not share one."""
    settings = await make(**GIVEN)
    play, folder = Play(settings, tmp_path), tmp_path / "copy"
    half, end = len(play.offsets) // 2, len(play.offsets)
    await play.write(0, half)
    async with play.following(copy := Lookup(settings, folder)):
        await play.is_as_of(copy, half - 1)
        with pytest.raises(StoreError, match="in use by another"):
            await Lookup(settings, folder).follow(lambda _: None)
    await play.write(half, end)
    (folder / "shard-1" / "db" / "CURRENT").write_text("damage")  # this shard begins again, the others are ahead
    async with play.following(copy := Lookup(settings, folder)):
        await play.is_as_of(copy, end - 1)
    with pytest.raises(UsageError, match="holds an index"):
        await Lookup(settings, tmp_path / "embedded").follow(lambda _: None)


@simulated()
async def test_records_outside_of_the_chain_change_nothing(make: Make, tmp_path: Path) -> None:
    """Repeated changes, changes of a worker that others have replaced, and foreign bytes."""
    settings = await make(**{**GIVEN, "shards": 1, "decision_lag": 16384})
    play, copy = Play(settings, tmp_path), Lookup(settings, tmp_path / "copy")
    changes, topic = play.pipe.changes[0], play.topics.changelog
    await send(settings, topic, [*changes[:4], *changes[1:4], changes[8], b"foreign", *changes[4:9]])
    await play.judged(0, 9)
    async with play.following(copy):
        await play.is_as_of(copy, 8)


@simulated()
@pytest.mark.parametrize("reason", ["settings", "key", "shards", "trimmed"])
async def test_what_does_not_fit_is_refused(make: Make, tmp_path: Path, reason: str) -> None:
    settings = await make(**GIVEN)
    play = Play(settings, tmp_path, 200)
    expected: type[Exception] = StoreError
    await play.write(0, 6)
    if reason == "settings":
        settings, text, expected = settings.model_copy(update={"threshold": 0.5}), "other settings", FormatError
        settings = KafkaSettings(**{name: getattr(settings, name) for name in KafkaSettings.model_fields})
    elif reason == "key":
        last = Change.decode(play.pipe.changes[0][0], settings)
        text, values = "the key of another index", {name: getattr(last, name) for name in Change.__slots__}
        await send(settings, play.topics.changelog, [Change(**{**values, "key": bytes(16)}).encode(settings)])
    elif reason == "shards":
        settings, text = settings.model_copy(update={"shards": 2}), "has 3 partitions, but shards = 2"
    else:
        await delete_before(settings, play.topics.changelog, 3, partition=1)
        text = "it was trimmed"
    with pytest.raises(expected, match=text):
        await asyncio.wait_for(Lookup(settings, tmp_path / "copy").follow(lambda _: None), 60)


@simulated()
async def test_full_disk_is_tried_again(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = await make(**GIVEN)
    play, copy = Play(settings, tmp_path, 200), Lookup(settings, tmp_path / "copy")
    await play.write(0, 6)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Copy, "apply", full)
        with pytest.raises(Failed, match="No space left"):
            await copy.follow(lambda _: None)
    async with play.following(copy):
        await play.is_as_of(copy, 5)


@simulated()
async def test_idle_snapshot_larger_than_what_may_wait(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy takes it while it answers as of the frame before, and follows the changes behind it."""
    monkeypatch.setattr(alignment, "WAITING_BYTES", 1)
    settings = await make(**{**GIVEN, "shards": 1, "decision_lag": 16384, "erase_hours": 0})
    play, copy, log = Play(settings, tmp_path), Lookup(settings, tmp_path / "copy"), Changelog()
    owner = Owner(settings, tmp_path / "owner", log)
    topic, half = play.topics.changelog, len(play.offsets) // 2
    for frame in play.pipe.sent[:half]:
        owner.match(frame[0])
    before = len(log.values)
    owner.cycle()
    snapshot = log.values[before:]
    assert len(snapshot) > 2
    await send(settings, topic, log.values[:before])
    await play.judged(0, half)
    async with play.following(copy):
        await play.is_as_of(copy, half - 1)
        for value in snapshot:
            await send(settings, topic, [value])
            await asyncio.sleep(0.5)
            await play.is_as_of(copy, half - 1)
        for frame in play.pipe.sent[half:]:
            owner.match(frame[0])
        await send(settings, topic, log.values[before + len(snapshot) :])
        await play.judged(half, len(play.offsets))
        await play.is_as_of(copy, len(play.offsets) - 1)
    owner.replica.close()


@simulated()
async def test_a_new_copy_begins_with_an_idle_snapshot(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read in many fetches, after the judge's last frame, which is that of the snapshot, is known."""
    settings = await make(**{**GIVEN, "shards": 1, "decision_lag": 16384, "erase_hours": 0})
    play, copy, log = Play(settings, tmp_path), Lookup(settings, tmp_path / "copy"), Changelog()
    owner = Owner(settings, tmp_path / "owner", log)
    half, whole = len(play.offsets) // 2, AIOKafkaConsumer.getmany
    for frame in play.pipe.sent[:half]:
        owner.match(frame[0])
    before = len(log.values)
    owner.cycle()
    await send(settings, play.topics.changelog, log.values)
    await play.judged(0, half)
    await delete_before(settings, play.topics.changelog, before)

    async def slowly(self: AIOKafkaConsumer, *places: Any, timeout_ms: int = 0, max_records: int | None = None) -> Any:
        await asyncio.sleep(0.3)
        return await whole(self, *places, timeout_ms=timeout_ms, max_records=1)

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", slowly)
    async with play.following(copy):
        await play.is_as_of(copy, half - 1)
    owner.replica.close()


@simulated()
async def test_change_in_parts_larger_than_what_may_wait(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All shards go on to its frame together, once it is whole."""
    monkeypatch.setattr(alignment, "WAITING_BYTES", 1)
    settings = await make(**GIVEN)
    play, copy = Play(settings, tmp_path, 200), Lookup(settings, tmp_path / "copy")
    await play.write(0, 3)
    place = Place(1, play.offsets[3], play.offsets[2])
    value = play.pipe.changes[1][3]
    parts = cut(value, place, len(value) // 2, settings)
    async with play.following(copy):
        await play.is_as_of(copy, 2)
        await play.judged(3, 6)
        await play.changes(3, 6, [0, 2])
        for part in parts:
            await play.is_as_of(copy, 2)
            await send(settings, play.topics.changelog, [part], partition=1)
            await asyncio.sleep(0.5)
        await play.is_as_of(copy, 3)
        await play.changes(4, 6, [1])
        await play.is_as_of(copy, 5)


KEPT = {"decision_lag": 2 * BLOCK}


@pytest.mark.parametrize("given", [
    {"shards": 3, **UPDATES, **WINDOW, **KEPT},
    *rotating([
        {"shards": 1}, {"shards": 1, **UPDATES, **WINDOW, "keep": "longest"},
        {"shards": 3, **KEPT}, {"shards": 3, **UPDATES, **KEPT}, {"shards": 2, **UPDATES, **KEPT, "keep": "newest"},
        {"shards": 3, "compare_with": "all", "max_verified_matches": 0},
    ], 2),
])  # fmt: skip
def test_frame_answers_as_embedded(tmp_path: Path, given: dict[str, object]) -> None:
    settings = settings_of(**given)
    documents = feed_of(settings, 240)
    log = frames(settings, documents)
    expected = each_frame(settings, log, tmp_path / "embedded", documents)
    pipe = Pipe(settings, log, tmp_path / "pipe")
    copies = [Replica(settings, shard, tmp_path / f"copy{shard}") for shard in range(settings.shards)]
    asked = 0
    for at, sequenced in enumerate(pipe.log):
        pipe.step(sequenced)
        for copy, changes in zip(copies, pipe.changes, strict=True):
            copy.deactivate()
            copy.apply([(at, changes[at])])
        if at % 4:
            continue
        for copy in copies:
            copy.activate()
        place = provisional_from(copies[0].shard.late.block, settings)
        known = [Decisions.decode(data, settings) for data in pipe.decided]
        reader = FrameReader(settings, KEY, copies, [d for d in known if d.documents > place] if settings.late else [])
        assert verdict_lines(checked(reader, columns(documents)).judgement) == expected[at], f"frame {at}"
        asked += 1
    assert asked >= 3
    for copy in copies:
        copy.close()
    pipe.close()


SETTINGS = settings_of(shards=2, compare_with="all")


def change(offset: int, predecessor: int) -> bytes:
    return Change(0, offset, predecessor, 0, 0, KEY, {}, b"").encode(SETTINGS)


def test_shards_stop_at_the_last_frame_of_all() -> None:
    found = Alignment(SETTINGS, [-1, 5], [0, 0])
    records = [change(2, -1), b"foreign", change(5, 2), change(2, -1), change(9, 7), change(7, 5)]
    for offset, value in enumerate(records):
        found.add(0, offset, value)
    assert found.frame == 5  # shard 1 has no more; 9 does not follow 5
    assert [offset for offset, _ in found.take(0, found.frame)] == [0, 1, 2, 3, 4]
    found.add(1, 3, change(7, 5))
    assert (found.frame, len(found.take(0, 7)), len(found.take(1, 7))) == (7, 1, 1)


def test_room_is_made_from_what_no_other_shard_holds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "WAITING_BYTES", len(change(7, 5)))
    found = Alignment(SETTINGS, [5, 5], [0, 0])
    found.add(0, 3, b"foreign")
    assert found.wants(0) and not found.makes_room(5)
    found.add(0, 4, change(7, 5))
    assert not found.wants(0) and found.makes_room(5)
    assert [offset for offset, _ in found.take(0, found.frame)] == [3]
    assert not found.wants(0) and not found.makes_room(5)  # the rest waits for the other shard
    found.add(1, 3, change(7, 5))
    assert found.makes_room(found.frame)


def test_trimmed_changelog_begins_anywhere() -> None:
    found = Alignment(SETTINGS, [-1, -1], [40, 40])
    found.add(0, 40, Base(0, KEY, Mark(BEGINS, 11, 0, 0, 0), facts={}).encode(SETTINGS))
    found.add(1, 40, change(12, 11))
    assert found.frame == 11
    found.add(0, 41, change(12, 11))
    assert found.frame == 12


def test_lag_counts_from_the_first_later_verdict() -> None:
    lag = Lag()
    for last, documents, now in ((4, 40, 100.0), (4, 40, 101.0), (6, 60, 102.0), (9, 90, 105.0)):
        lag.note(last, documents, now)
    assert lag.behind(-1, 106.0) == Behind(90, 6.0)
    assert lag.behind(5, 106.0) == Behind(50, 4.0)
    assert lag.behind(9, 106.0) == lag.behind(10, 110.0) == Behind(0, 0.0)
