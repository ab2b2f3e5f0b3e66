"""A shard that a worker holds, without a broker: opening and closing, a changelog that is trimmed, frames missing."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.kafka.match_play import documents, frames

from stream_lsh.errors import DamagedError, StateError
from stream_lsh.index import store
from stream_lsh.kafka.match import held as module
from stream_lsh.kafka.match import kept_answers
from stream_lsh.kafka.match.held import Held
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.kafka.run.lives import Failed
from stream_lsh.kafka.settings import KafkaSettings

SIZE = 8
FRAMES = 20


def settings_of(folder: Path, **given: Any) -> KafkaSettings:
    return KafkaSettings(**{"data_folder": folder / "data", **given})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[bytes], list[bytes]]:
    """Frames, and the changes that an undisturbed shard makes of them."""
    settings = settings_of(tmp_path_factory.mktemp("whole"))
    log = frames(settings, documents(SIZE * FRAMES), SIZE)
    replica = Replica(settings, 0, settings.data_folder / "shard-0")
    replica.activate()
    changes = []
    for data in log:
        answer = replica.match(data)
        assert answer is not None and answer.change is not None
        changes.append(answer.change)
    replica.close()
    return log, changes


async def opened(held: Held, start: int, end: int) -> None:
    """Open it beside a changelog with the offsets [start, end)."""
    await held.open(start)
    held.check(start, end)


async def followed(held: Held, changes: Sequence[bytes], first: int, last: int) -> None:
    """Follow the changelog's records [first, last)."""
    for offset in range(first, last):
        assert await held.take(offset, changes[offset], more=offset + 1 < last)


async def kept(settings: KafkaSettings, changes: Sequence[bytes], last: int) -> None:
    """Leave a folder that knows the changelog up to before `last`."""
    held = Held(settings, 0)
    await opened(held, 0, last)
    await followed(held, changes, 0, last)
    await held.close()


Whole = tuple[list[bytes], list[bytes]]


def test_closing_waits_for_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A life that crashes while a shard is opened leaves nothing that is open."""
    settings = settings_of(tmp_path)
    real, begun, go = Held._new, threading.Event(), threading.Event()

    def slow(self: Held) -> Replica:
        begun.set()
        assert go.wait(30)
        return real(self)

    async def scenario() -> None:
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

    asyncio.run(scenario())


def test_what_is_closed_as_soon_as_it_is_open_was_opened(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)

    async def scenario() -> None:
        held = Held(settings, 0)
        opening = asyncio.ensure_future(held.open(0))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(held.close())
        await asyncio.sleep(0)
        held._thread.submit(lambda: None).result()  # both are done before either is told
        await asyncio.gather(opening, closing)

    asyncio.run(scenario())


def test_closing_applies_what_was_taken(tmp_path: Path, whole: Whole) -> None:
    settings = settings_of(tmp_path)

    async def scenario() -> None:
        held = Held(settings, 0)
        await opened(held, 0, FRAMES)
        for offset, change in enumerate(whole[1]):
            assert await held.take(offset, change, more=True)
        assert held.backlog.waiting == sum(map(len, whole[1]))
        await held.close()
        assert held.backlog.waiting == 0

    asyncio.run(scenario())
    replica = Replica(settings, 0, settings.data_folder / "shard-0")
    assert replica.changelog_offset == replica.last == FRAMES - 1
    replica.close()


def test_an_empty_folder_says_what_it_cannot_know(tmp_path: Path, whole: Whole, caplog: Any) -> None:
    log, changes = whole

    async def scenario() -> None:
        held = Held(settings_of(tmp_path), 0)
        await opened(held, 8, 10)
        held.check(8, 10)
        await followed(held, changes, 8, 10)
        await held.activate()
        assert [matched.answer is not None for matched in await held.match(log[10:12], ())] == [True, True]
        await held.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert caplog.text.count("begins at offset 8; the shard knows nothing of the 8 records before") == 1


@pytest.mark.parametrize("accept_loss", [False, True])
@pytest.mark.parametrize("left", ["some", "none"])
def test_a_folder_behind_what_is_left_of_the_changelog(
    tmp_path: Path, whole: Whole, left: str, accept_loss: bool
) -> None:  # fmt: skip
    """Its state is never mixed with what comes later, and only deleted with leave; it stays so after a restart."""
    log, changes = whole
    settings = settings_of(tmp_path, accept_loss=accept_loss)
    start, end = (8, 12) if left == "some" else (12, 12)

    async def life() -> list[bool]:
        held = Held(settings, 0)
        try:
            await opened(held, start, end)
            await followed(held, changes, start, end)
            held.check(start, end)  # another rebalance
            await held.activate()
            return [matched.answer is not None for matched in await held.match(log[12:], ())]
        finally:
            await held.close()

    async def scenario() -> None:
        await kept(settings, changes, 5)
        if not accept_loss:
            for _ in range(2):
                with pytest.raises(StateError, match=r"was trimmed, it begins at offset.*--accept-loss once"):
                    await life()
            assert (settings.data_folder / "shard-0" / "db" / "CURRENT").exists()
        else:
            with pytest.raises(Failed, match="begins again"):
                await life()
            assert await life() == [True] * (FRAMES - 12)

    asyncio.run(scenario())


@pytest.mark.parametrize("left", ["some", "none"])
def test_a_folder_that_has_all_though_it_counts_less(tmp_path: Path, whole: Whole, left: str, caplog: Any) -> None:
    """Its own changes behind another owner's record do not count: when they are trimmed, the chain still fits."""
    log, changes = whole
    settings = settings_of(tmp_path)

    async def scenario() -> None:
        held = Held(settings, 0)
        await opened(held, 0, 0)
        await held.activate()
        await held.match(log[:10], list(enumerate([0, 1, 3, 4, 5, 6, 7, 8, 9, 10])))  # 2 was another's
        await held.close()
        held = Held(settings, 0)
        start = 8 if left == "some" else 11
        await opened(held, start, 11)
        for offset in range(start, 11):
            assert await held.take(offset, changes[offset - 1], more=False)
        await held.activate()
        assert all(matched.answer is not None for matched in await held.match(log[10:], ()))
        await held.match((), [(10, 11)])
        await held.close()

    asyncio.run(scenario())
    assert "ends at offset 1 of the changelog" in caplog.text
    replica = Replica(settings, 0, settings.data_folder / "shard-0")
    assert (replica.last, replica.changelog_offset) == (FRAMES - 1, 11)
    replica.close()


def test_a_standby_of_an_emptied_changelog_that_has_followed_begins_nowhere_else(
    tmp_path: Path, whole: Whole
) -> None:  # fmt: skip
    log, changes = whole

    async def scenario() -> None:
        held = Held(settings_of(tmp_path), 0)
        await opened(held, 5, 5)
        await followed(held, changes, 5, 10)
        await held.activate()
        # The sequencer lost frame 10; it was not answered, so it comes again.
        found = await held.match([log[11], log[12]], ())
        assert [matched.answer for matched in found] == [None, None]
        assert all(matched.answer is not None for matched in await held.match(log[10:13], ()))
        await held.close()

    asyncio.run(scenario())


def test_a_record_that_comes_late_does_not_close_an_active_shard(tmp_path: Path, whole: Whole) -> None:
    """One that was fetched before recovery ended, another owner's; it is read when the shard is assigned anew."""
    log, changes = whole

    async def scenario() -> None:
        held = Held(settings_of(tmp_path), 0)
        await opened(held, 0, 10)
        await followed(held, changes, 0, 10)
        activating = asyncio.create_task(held.activate())
        await asyncio.sleep(0)
        for offset in (10, 12):  # while it is opened, and with a hole before it
            assert await held.take(offset, changes[offset], more=False)
        await activating
        assert await held.take(10, changes[10], more=False)
        assert all(matched.answer is not None for matched in await held.match(log[10:12], ()))
        assert held.expected == 10
        held.check(0, 12)
        await followed(held, changes, 10, 12)
        await held.activate()
        assert all(matched.answer is not None for matched in await held.match(log[12:], ()))
        await held.close()

    asyncio.run(scenario())


def test_a_frame_that_stays_away_ends_it_in_time(
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

    async def scenario() -> None:
        nonlocal now
        held = Held(settings, 0)
        await opened(held, 0, 0)
        await held.activate()
        await held.match([log[0], log[2]], ())
        now += module.GAP_SECONDS - 1
        held.look()
        await held.match([log[1], log[3]], ())
        now += module.GAP_SECONDS - 1
        held.look()
        await held.match([log[0], log[3]], ())
        now += 2
        with pytest.raises(StateError, match=r"ends at frame 1 of signatures.*has not come for 60 s"):
            held.look()
        await held.match([log[2]], ())
        held.look()
        await held.close()

    asyncio.run(scenario())
    assert caplog.text.count("not the next one") == 2


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.ENOSPC])
@pytest.mark.parametrize("where", ["open", "activate"])
def test_a_folder_that_the_system_refuses_stays(
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

    async def life() -> None:
        held = Held(settings, 0)
        try:
            with monkeypatch.context() as patched:
                if where == "open":
                    patched.setattr(store, "Rdict", Refused)
                await opened(held, 0, FRAMES)
                patched.setattr(os, "open", refuse)
                await held.activate()
        finally:
            await held.close()

    async def scenario() -> None:
        await kept(settings, whole[1], FRAMES)
        with pytest.raises(StateError, match="nothing is damaged") as info:
            await life()
        assert not isinstance(info.value, DamagedError)
        held = Held(settings, 0)
        await opened(held, 0, FRAMES)
        assert held.read == FRAMES - 1
        await held.close()

    asyncio.run(scenario())
    assert folder.exists()


@pytest.mark.parametrize("start", [0, 3])
def test_what_is_damaged_is_deleted_only_if_the_changelog_is_whole(
    tmp_path: Path, whole: Whole, start: int, caplog: Any
) -> None:  # fmt: skip
    settings = settings_of(tmp_path)
    current = settings.data_folder / "shard-0" / "db" / "CURRENT"

    async def scenario() -> None:
        await kept(settings, whole[1], FRAMES)
        current.unlink()
        held = Held(settings, 0)
        if start:
            with pytest.raises(
                StateError, match=r"CURRENT is missing.*was trimmed, it begins at offset 3.*accept-loss"
            ):
                await opened(held, start, FRAMES)
            assert current.parent.exists()
        else:
            await opened(held, start, FRAMES)
            assert held.read is None
        await held.close()

    asyncio.run(scenario())
    assert "backup" not in caplog.text


def test_damage_met_while_matching_says_what_to_do_on_kafka(
    tmp_path: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def damaged(*_: object) -> None:
        raise DamagedError("the texts from row 0 are damaged; restore the folder from a backup")

    async def scenario() -> None:
        held = Held(settings_of(tmp_path), 0)
        await opened(held, 0, 0)
        await held.activate()
        with monkeypatch.context() as patched:
            patched.setattr(Replica, "match", damaged)
            with pytest.raises(StateError, match=r"are damaged; delete .*shard-0: it is rebuilt from the changelog$"):
                await held.match(whole[0][:1], ())
        await held.close()

    asyncio.run(scenario())


def test_a_copy_of_a_folder_is_a_start(tmp_path: Path, whole: Whole) -> None:
    settings = settings_of(tmp_path)
    other = settings.model_copy(update={"data_folder": tmp_path / "other"})

    async def scenario() -> None:
        await kept(settings, whole[1], 5)
        shutil.copytree(settings.data_folder, other.data_folder)
        held = Held(other, 0)
        await opened(held, 3, FRAMES)
        await followed(held, whole[1], 5, FRAMES)
        await held.activate()
        assert held.size()[0] > 0
        await held.close()

    asyncio.run(scenario())


LONG = 70  # frames: 56 minutes, of which the window has 16
WINDOW: dict[str, Any] = {"window": "16m", "decided_after": 4, "generation_documents": 400}


@pytest.fixture
def windowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[bytes], list[bytes], list[bytes], int]:
    """Frames of a shard with a window, its changes and replies, and from which offset on the changelog is needed."""
    monkeypatch.setattr(kept_answers, "KEPT_FRAMES", 5)
    monkeypatch.setattr(kept_answers, "MOST_ROWS", 0)
    settings = settings_of(tmp_path / "whole", **WINDOW)
    log = frames(settings, documents(SIZE * LONG), SIZE)
    replica = Replica(settings, 0, settings.data_folder / "shard-0")
    replica.activate()
    changes, replies = [], []
    for number, data in enumerate(log):
        answer = replica.match(data)
        assert answer is not None and answer.change is not None and answer.reply is not None
        changes.append(answer.change)
        replies.append(answer.reply)
        if number == LONG - 6:
            for offset in range(number + 1):
                replica.confirmed(offset, offset)
    assert replica.forgetting is not None and replica.forgetting.needed is not None
    needed = replica.forgetting.needed
    replica.close()
    assert LONG // 3 < needed < LONG - 20
    return log, changes, replies, needed


@pytest.mark.parametrize("disk", ["none", "damaged", "behind"])
def test_with_a_window_what_is_left_of_the_changelog_is_enough(
    tmp_path: Path, windowed: tuple[list[bytes], list[bytes], list[bytes], int], disk: str, caplog: Any
) -> None:
    """A folder that is of no use is deleted without leave."""
    log, changes, replies, start = windowed
    settings, end = settings_of(tmp_path, **WINDOW), LONG - 5

    async def life() -> list[bytes | None]:
        held = Held(settings, 0)
        try:
            await opened(held, start, end)
            await followed(held, changes, start, end)
            await held.activate()
            return [matched.answer and matched.answer.reply for matched in await held.match(log[end:], ())]
        finally:
            await held.close()

    async def scenario() -> None:
        if disk != "none":
            await kept(settings, changes, 5)
        if disk == "damaged":
            (settings.data_folder / "shard-0" / "db" / "CURRENT").unlink()
        if disk == "behind":
            with pytest.raises(Failed, match="begins again"):
                await life()
        assert await life() == replies[end:]

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert ("has left the window; deleting" in caplog.text) == (disk == "behind")
    assert "knows nothing of" not in caplog.text


@pytest.mark.parametrize("disk", ["none", "behind"])
def test_with_a_window_a_changelog_that_has_lost_more_is_no_whole_one(
    tmp_path: Path, windowed: tuple[list[bytes], list[bytes], list[bytes], int], disk: str, caplog: Any
) -> None:
    log, changes, _, start = windowed
    settings, end = settings_of(tmp_path, **WINDOW), LONG - 5

    async def life() -> None:
        held = Held(settings, 0)
        try:
            await opened(held, start + 12, end)
            await followed(held, changes, start + 12, end)
            await held.activate()
            assert all(matched.answer is not None for matched in await held.match(log[end:], ()))
        finally:
            await held.close()

    async def scenario() -> None:
        if disk == "behind":
            await kept(settings, changes, 5)
            with pytest.raises(StateError, match=r"was trimmed, it begins at offset.*--accept-loss once"):
                await life()
        else:
            await life()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert ("documents before, which are within the window" in caplog.text) == (disk == "none")
