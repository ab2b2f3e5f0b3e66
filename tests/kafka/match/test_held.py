"""A shard that a worker holds, without a broker: opening and closing, a changelog that is trimmed, frames missing."""

import asyncio
import errno
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from support.kafka.match_play import frames
from support.kafka.replica_play import WINDOW, answer, change_of, reply_of, stream, undisturbed
from support.long_form import rotating

from stream_lsh.errors import DamagedError, StoreError
from stream_lsh.index.postings import runs
from stream_lsh.index.postings.merge_policy import TOLERATED
from stream_lsh.index.postings.run import Run
from stream_lsh.index.rows.row_file import RowFile
from stream_lsh.index.segments.manifest import Manifest
from stream_lsh.index.shard import Shard
from stream_lsh.index.store import rocksdb
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.kafka.match import held as module
from stream_lsh.kafka.match import kept_answers
from stream_lsh.kafka.match.backlog import MERGE_BYTES, Backlog
from stream_lsh.kafka.match.copy import SNAPSHOT
from stream_lsh.kafka.match.held import Held
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings

SIZE = 8
FRAMES = 20
Whole = tuple[list[bytes], list[bytes]]


def settings_of(folder: Path, **given: Any) -> KafkaSettings:
    return KafkaSettings(**{"data_folder": folder / "data", **given})


def made(folder: Path, count: int) -> Whole:
    """Frames, and the changes that an undisturbed shard makes of them."""
    settings = settings_of(folder)
    log = frames(settings, stream(1, SIZE * count), SIZE)
    return log, [change_of(found) for found in undisturbed(settings, log, settings.data_folder)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return made(tmp_path_factory.mktemp("whole"), FRAMES)


async def opened(held: Held, start: int, end: int) -> None:
    """Open it beside a changelog with the offsets [start, end)."""
    await held.open(start)
    held.check(start, end)


@asynccontextmanager
async def holding(settings: KafkaSettings, start: int = 0, end: int = 0) -> AsyncIterator[Held]:
    """A shard that is opened, beside a changelog with the offsets [start, end), and closed again."""
    held = Held(settings, 0)
    try:
        await opened(held, start, end)
        yield held
    finally:
        await held.close()


async def followed(held: Held, changes: Sequence[bytes], first: int, last: int) -> None:
    """Follow the changelog's records [first, last)."""
    for offset in range(first, last):
        assert await held.take(offset, changes[offset], more=offset + 1 < last)


async def kept(settings: KafkaSettings, changes: Sequence[bytes], last: int) -> None:
    """Leave a folder that knows the changelog up to before `last`."""
    async with holding(settings, 0, last) as held:
        await followed(held, changes, 0, last)


async def run(
    settings: KafkaSettings, changes: Sequence[bytes], start: int, end: int, log: Sequence[bytes]
) -> list[bytes | None]:
    """Follow a changelog with the offsets [start, end), and answer."""
    async with holding(settings, start, end) as held:
        await followed(held, changes, start, end)
        held.check(start, end)  # another rebalance
        await held.activate()
        return [matched.answer and matched.answer.reply for matched in await held.match(log)]


async def test_half_a_deleted_folder_is_no_damage(
    tmp_path: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changelog was cleaned, and has all that is needed: the folder is given up. The worker is killed while it
    deletes it, and the next one needs no leave to go on."""
    settings = settings_of(tmp_path)
    await kept(settings, whole[1], FRAMES)

    def killed(folder: Path) -> None:
        (folder / "db" / "CURRENT").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", killed)
        async with holding(settings, FRAMES, FRAMES + 1) as held:
            with pytest.raises(KeyboardInterrupt):
                held._delete("the changelog was cleaned", whole=True)
    async with holding(settings, FRAMES, FRAMES + 1) as held:
        assert held.reached == 0
    assert [path.name for path in settings.data_folder.iterdir()] == ["shard-0"]


async def test_closing_waits_for_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that crashes while a shard is opened leaves nothing that is open."""
    settings = settings_of(tmp_path)
    real, begun, go = Held._new, threading.Event(), threading.Event()

    def slow(self: Held) -> Replica:
        begun.set()
        assert go.wait(30)
        return real(self)

    with monkeypatch.context() as patched:
        patched.setattr(Held, "_new", slow)
        held = Held(settings, 0)
        opening = asyncio.create_task(opened(held, 0, 0))
        await asyncio.to_thread(begun.wait, 30)
        opening.cancel()
        closing = asyncio.create_task(held.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        go.set()
        await closing
        await held.close()
    await kept(settings, [], 0)  # not in use by anybody


async def test_what_is_closed_as_soon_as_it_is_open_was_opened(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    held = Held(settings, 0)
    opening = asyncio.ensure_future(held.open(0))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(held.close())
    await asyncio.sleep(0)
    held._thread.submit(lambda: None).result()  # both are done before either is told
    await asyncio.gather(opening, closing)


async def test_closing_applies_what_was_taken(tmp_path: Path, whole: Whole) -> None:
    settings = settings_of(tmp_path)
    async with holding(settings, 0, FRAMES) as held:
        for offset, change in enumerate(whole[1]):
            assert await held.take(offset, change, more=True)
        assert held.backlog.waiting == sum(map(len, whole[1]))
    assert held.backlog.waiting == 0
    replica = Replica(settings, 0, settings.data_folder / "shard-0")
    assert replica.changelog_offset == replica.last == FRAMES - 1
    replica.close()


async def test_standby_leaves_a_memtable_to_rebuild(tmp_path: Path, whole: Whole) -> None:
    settings = settings_of(tmp_path, memtable_documents=16)
    await kept(settings, whole[1], FRAMES)
    with closing(Store(settings.data_folder / "shard-0" / "db", read_only=True)) as store:
        assert Manifest(store, 0, 0).in_files >= SIZE * (FRAMES - 3)


async def test_a_merge_holds_up_neither_changelog_nor_taking_over(
    tmp_path: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    merging = threading.Event()

    def merge(_: Shard, ends: Callable[[], bool]) -> None:
        while not ends():
            merging.set()
            time.sleep(0.001)

    monkeypatch.setattr(Shard, "merge", merge)
    async with asyncio.timeout(20), holding(settings_of(tmp_path, memtable_documents=16), 0, FRAMES) as held:
        for offset, change in enumerate(whole[1]):
            assert await held.take(offset, change, more=False)
        await asyncio.to_thread(merging.wait, 30)
        assert held.backlog.waiting > 0
        held.check(0, FRAMES, assigned=True)
        while held.backlog.waiting > 0:
            await asyncio.sleep(0.001)


async def test_merges_of_a_standby_are_not_put_off_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the changelog always has more than may wait for a merge, and merges take longer than to apply a batch."""
    merge = runs._merge_file

    def slow(*given: Any) -> Run:
        given[-1].wait(0.05)  # a merge that is dropped meanwhile ends with an error
        return merge(*given)

    monkeypatch.setattr(runs, "_merge_file", slow)
    monkeypatch.setattr(Backlog, "behind", MERGE_BYTES + 1)
    changes, settings = made(tmp_path / "whole", 3 * FRAMES)[1], settings_of(tmp_path, memtable_documents=16)
    async with holding(settings, 0, len(changes)) as held:
        for offset, change in enumerate(changes):
            assert await held.take(offset, change, more=False)
            await held.backlog.wait(-1)
    with closing(Store(settings.data_folder / "shard-0" / "db", read_only=True)) as store:
        levels = [run["level"] for run in store.named("shard/0")["segments"][-1]["runs"]]
    assert max(levels) > 0 and levels.count(0) <= TOLERATED + 2, levels


def test_a_batch_that_is_applied_does_not_put_off_its_merge() -> None:
    backlog = Backlog(lambda _: Future())
    for offset, behind in enumerate((0, MERGE_BYTES + 1)):
        backlog.add(offset, bytes(MERGE_BYTES + 1))
        backlog.flush()
        assert backlog.behind == behind


async def test_full_disk_names_folder_and_remedy(
    tmp_path: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The system does not name the file of a descriptor."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RowFile, "append", full)
    async with holding(settings_of(tmp_path, memtable_documents=16)) as held:
        await held.activate()
        with pytest.raises(StoreError, match=r"shard-0 cannot be used: No space left on device; make room on the disk"):
            await held.match(whole[0])


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize("left", ["some", "none"])
async def test_a_folder_behind_what_is_left_of_the_changelog(
    tmp_path: Path, whole: Whole, left: str, accepted: bool
) -> None:  # fmt: skip
    """Its state is never mixed with what comes later, and only deleted with leave; it stays so after a restart."""
    log, changes = whole
    start, end = (8, 12) if left == "some" else (12, 12)
    place = f"stream-lsh.match-shards-changelog:0:{start if accepted else start + 1}"
    settings = settings_of(tmp_path, accept_trimmed_changelog=place)

    await kept(settings, changes, 5)
    if not accepted:
        for _ in range(2):
            with pytest.raises(StoreError, match=r"was trimmed, it begins at offset.*--accept-trimmed-changelog"):
                await run(settings, changes, start, end, log[12:])
        assert (settings.data_folder / "shard-0" / "db" / "CURRENT").exists()
    else:
        with pytest.raises(Failed, match="begins again"):
            await run(settings, changes, start, end, log[12:])
        assert all(await run(settings, changes, start, end, log[12:]))


@pytest.mark.parametrize("left", ["some", "none"])
async def test_a_folder_that_has_all_though_it_counts_less(
    tmp_path: Path, whole: Whole, left: str, caplog: Any
) -> None:
    """Its own changes behind another owner's record did not count yet: when they are trimmed, the chain still fits."""
    log, changes = whole
    settings = settings_of(tmp_path)
    async with holding(settings) as held:
        await held.activate()
        held.confirmed.extend([(0, 0, 1), (1, 1, 1)])  # 2 was another's, and was not read yet
        await held.match(log[:10])
    held = Held(settings, 0)
    start = 8 if left == "some" else 11
    await opened(held, start, 11)
    for offset in range(start, 11):
        assert await held.take(offset, changes[offset - 1], more=False)
    await held.activate()
    assert all(matched.answer is not None for matched in await held.match(log[10:]))
    held.confirmed.append((10, 11, 1))
    await held.match(())
    await held.close()
    assert "ends at offset 1 of the changelog" in caplog.text
    replica = Replica(settings, 0, settings.data_folder / "shard-0")
    assert (replica.last, replica.changelog_offset) == (FRAMES - 1, 11)
    replica.close()


async def test_a_standby_of_an_emptied_changelog_that_has_followed_begins_nowhere_else(
    tmp_path: Path, whole: Whole
) -> None:  # fmt: skip
    log, changes = whole
    async with holding(settings_of(tmp_path), 5, 5) as held:
        await followed(held, changes, 5, 10)
        await held.activate()
        # The sequencer lost frame 10; it was not answered, so it comes again.
        found = await held.match([log[11], log[12]])
        assert [matched.answer for matched in found] == [None, None]
        assert all(matched.answer is not None for matched in await held.match(log[10:13]))


async def test_a_record_that_comes_late_does_not_close_an_active_shard(tmp_path: Path, whole: Whole) -> None:
    """One that was fetched before recovery ended, another owner's; it is read when the shard is assigned anew."""
    log, changes = whole
    async with holding(settings_of(tmp_path), 0, 10) as held:
        await followed(held, changes, 0, 10)
        activating = asyncio.create_task(held.activate())
        await asyncio.sleep(0)
        for offset in (10, 12):  # while it is opened, and with a hole before it
            assert await held.take(offset, changes[offset], more=False)
        await activating
        assert await held.take(10, changes[10], more=False)
        assert all(matched.answer is not None for matched in await held.match(log[10:12]))
        assert held.expected == 10
        held.check(0, 12)
        await followed(held, changes, 10, 12)
        await held.activate()
        assert all(matched.answer is not None for matched in await held.match(log[12:]))


async def test_a_frame_that_stays_away_ends_it_in_time(
    tmp_path: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:  # fmt: skip
    """However few frames follow; repeats of older ones do not count as having come."""
    log, _ = whole
    settings = settings_of(tmp_path, session_timeout_ms=1000)
    now = 1000.0

    class Clock:
        monotonic = staticmethod(lambda: now)
        perf_counter = staticmethod(lambda: 0.0)

    monkeypatch.setattr(module, "time", Clock)

    async with holding(settings) as held:
        await held.activate()
        await held.match([log[0], log[2]])
        now += module.GAP_SECONDS - 1
        held.look()
        await held.match([log[1], log[3]])
        now += module.GAP_SECONDS - 1
        held.look()
        await held.match([log[0], log[3]])
        now += 2
        with pytest.raises(StoreError, match=r"ends at frame 1 of signatures.*has not come for 60 s"):
            held.look()
        await held.match([log[2]])
        held.look()
    assert caplog.text.count("later ones are ignored") == 2


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.ENOSPC])
@pytest.mark.parametrize("where", ["open", "activate"])
async def test_a_folder_that_the_system_refuses_stays(
    tmp_path: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch, number: int, where: str
) -> None:  # fmt: skip
    settings = settings_of(tmp_path)
    folder = settings.data_folder / "shard-0"

    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    class Refused:
        @staticmethod
        def list_cf(path: str, *_: object) -> object:
            raise Exception(f"IO error: While open a file for random read: {path}/000004.sst: {os.strerror(number)}")

    async def run() -> None:
        held = Held(settings, 0)
        try:
            with monkeypatch.context() as patched:
                if where == "open":
                    patched.setattr(rocksdb, "Rdict", Refused)
                await opened(held, 0, FRAMES)
                patched.setattr(os, "open", refuse)
                await held.activate()
        finally:
            await held.close()

    await kept(settings, whole[1], FRAMES)
    with pytest.raises(StoreError, match="nothing is damaged") as info:
        await run()
    assert not isinstance(info.value, DamagedError)
    async with holding(settings, 0, FRAMES) as held:
        assert held.read == FRAMES - 1
    assert folder.exists()


@pytest.mark.parametrize("start", [0, 3])
async def test_what_is_damaged_is_deleted_only_if_the_changelog_is_whole(
    tmp_path: Path, whole: Whole, start: int, caplog: Any
) -> None:  # fmt: skip
    settings = settings_of(tmp_path)
    current = settings.data_folder / "shard-0" / "db" / "CURRENT"
    await kept(settings, whole[1], FRAMES)
    current.unlink()
    held = Held(settings, 0)
    if start:
        with pytest.raises(StoreError, match=r"CURRENT is missing.*was trimmed, it begins at offset 3.*changelog:0:3:"):
            await opened(held, start, FRAMES)
        assert current.parent.exists()
    else:
        await opened(held, start, FRAMES)
        assert held.read is None
    await held.close()
    assert "backup" not in caplog.text


@pytest.mark.parametrize("snapshot", [None, 7, 8])
async def test_a_damaged_folder_knows_whether_the_changelog_begins_with_a_snapshot(
    tmp_path: Path, snapshot: int | None
) -> None:  # fmt: skip
    """With updates the changelog is cleaned; that it begins after 0 may have another cause."""
    settings = settings_of(tmp_path, on_conflict="update")
    async with holding(settings) as held:
        folder = held.folder
    (folder / "db" / "CURRENT").write_text("nonsense\n")
    if snapshot is not None:
        (folder / SNAPSHOT).write_text(f"{snapshot}\n")
    held = Held(settings, 0)
    if snapshot == 8:
        await held.open(8)
    else:
        with pytest.raises(StoreError, match=r"was trimmed, it begins at offset 8.*--accept-trimmed-changelog"):
            await held.open(8)
    await held.close()


async def test_damage_met_while_matching_says_what_to_do_on_kafka(
    tmp_path: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def damaged(*_: object) -> None:
        raise DamagedError("the texts from row 0 are damaged; restore the folder from a backup")

    async with holding(settings_of(tmp_path)) as held:
        await held.activate()
        with monkeypatch.context() as patched:
            patched.setattr(Replica, "match", damaged)
            with pytest.raises(StoreError, match=r"are damaged; delete .*shard-0: it is rebuilt from the changelog$"):
                await held.match(whole[0][:1])


LONG = 70  # frames: 56 minutes, of which the window has 16
Windowed = tuple[list[bytes], list[bytes], list[bytes], int]


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Windowed:
    """Frames of a shard with a window, its changes and replies, and from which offset on the changelog is needed."""
    settings = settings_of(tmp_path_factory.mktemp("windowed"), **WINDOW)
    log = frames(settings, stream(1, SIZE * LONG), SIZE)
    with pytest.MonkeyPatch.context() as patched, closing(Replica(settings, 0, settings.data_folder)) as replica:
        patched.setattr(kept_answers, "KEPT_FRAMES", 5)
        patched.setattr(kept_answers, "MOST_ROWS", 0)
        replica.activate()
        found = []
        for number, data in enumerate(log):
            found.append(answer(replica, data))
            if number == LONG - 6:
                for offset in range(number + 1):
                    replica.confirmed(offset, offset)
        assert replica.forgetting is not None and replica.forgetting.needed is not None
        needed = replica.forgetting.needed
    assert LONG // 3 < needed < LONG - 20
    return log, [change_of(each) for each in found], [reply_of(each) for each in found], needed


@pytest.mark.usefixtures("short_memory")
async def test_a_rebalance_while_a_folder_is_deleted_begins_again(tmp_path: Path, windowed: Windowed) -> None:
    """The error of the batch that deleted it has not been taken yet."""
    _, changes, _, start = windowed
    settings, end = settings_of(tmp_path, **WINDOW), LONG - 5
    await kept(settings, changes, 5)
    async with holding(settings, start, end) as held:
        for offset in range(start, end):
            assert await held.take(offset, changes[offset], more=True)
        held.backlog.flush()
        await asyncio.to_thread(lambda: [one.exception() for one, _ in held.backlog._applying])
        assert not held.folder.exists()
        with pytest.raises(Failed, match="is not open"):
            held.check(start, end)


@pytest.mark.usefixtures("short_memory")
@pytest.mark.parametrize("disk", ["behind", *rotating(["none", "damaged"], 1)])
async def test_with_a_window_what_is_left_of_the_changelog_is_enough(
    tmp_path: Path, windowed: Windowed, disk: str, caplog: Any
) -> None:
    """A folder that is of no use is deleted without leave."""
    log, changes, replies, start = windowed
    settings, end = settings_of(tmp_path, **WINDOW), LONG - 5

    with caplog.at_level(logging.INFO):
        if disk != "none":
            await kept(settings, changes, 5)
        if disk == "damaged":
            (settings.data_folder / "shard-0" / "db" / "CURRENT").unlink()
        if disk == "behind":
            with pytest.raises(Failed, match="begins again"):
                await run(settings, changes, start, end, log[end:])
        assert await run(settings, changes, start, end, log[end:]) == replies[end:]
    assert ("has left the window; deleting" in caplog.text) == (disk == "behind")
    assert "the shard lacks" not in caplog.text


@pytest.mark.usefixtures("short_memory")
@pytest.mark.parametrize("disk", ["none", "behind"])
async def test_with_a_window_a_changelog_that_has_lost_more_is_no_whole_one(
    tmp_path: Path, windowed: Windowed, disk: str, caplog: Any
) -> None:
    log, changes, _, start = windowed
    settings, end = settings_of(tmp_path, **WINDOW), LONG - 5

    with caplog.at_level(logging.WARNING):
        if disk == "behind":
            await kept(settings, changes, 5)
            with pytest.raises(StoreError, match=r"was trimmed, it begins at offset.*--accept-trimmed-changelog"):
                await run(settings, changes, start + 12, end, log[end:])
        else:
            assert all(await run(settings, changes, start + 12, end, log[end:]))
    assert ("earlier documents are missing, which are within the window" in caplog.text) == (disk == "none")
