"""The copy of the groups that `serve` has of a pipeline, without a broker: what becomes of it when it is cut off."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from stream_lsh.embedded.group_store import FACT
from stream_lsh.index.store.rocksdb import name_key
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.serve.pipeline import copying
from stream_lsh.serve.pipeline.copying import GroupCopy

KEPT = 1000.0  # seconds for which tombstones are kept
BEGUN, GROUP = name_key(FACT), name_key("group")
OLD, NEW = {BEGUN: b"1", GROUP: b"1"}, {BEGUN: b"1"}


class Broker:
    """A changelog of which compaction has removed a tombstone, and a clock.

    Attributes:
        ends: number of records after which the broker goes away; None: all.
    """

    ends: int | None = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.records = list(OLD.items())
        self.asked: list[int] = []  # where readers begin

        async def kept(*_: object) -> float:
            return 1000 * KEPT

        async def learn(*_: object) -> None: ...

        @asynccontextmanager
        async def consuming(*_: object, **__: object) -> AsyncIterator[Any]:
            yield self

        monkeypatch.setattr(copying, "clock", lambda: self.now)
        monkeypatch.setattr(copying, "tombstones_kept", kept)
        monkeypatch.setattr(copying, "consuming", consuming)
        monkeypatch.setattr(copying, "private", SimpleNamespace(learn=learn, reader_ended=lambda _: (False, None)))

    async def beginning_offsets(self, places: list[Any]) -> dict[Any, int]:
        return dict.fromkeys(places, 0)

    async def end_offsets(self, places: list[Any]) -> dict[Any, int]:
        return dict.fromkeys(places, len(self.records))

    def assign(self, _: object) -> None: ...

    def seek(self, place: Any, offset: int) -> None:
        self.place, self.at = place, offset
        self.asked.append(offset)

    async def position(self, _: object) -> int:
        return self.at

    async def getmany(self, **_: object) -> dict[Any, list[Any]]:
        """One record at a time; at the end the broker goes away."""
        if self.at == (len(self.records) if self.ends is None else self.ends):
            raise ConnectionError("away")
        key, value = self.records[self.at]
        self.at += 1
        return {self.place: [SimpleNamespace(key=key, value=value)]}


async def run(copy: GroupCopy) -> list[dict[bytes, bytes | None]]:
    """Follow until the broker goes away; what is read whenever it is up to date."""
    found = list[dict[bytes, bytes | None]]()

    def seen(_: bool) -> None:
        assert copy._read is not None
        store = copy._read.store
        found.append({key: value for key in (BEGUN, GROUP) if (value := store.value(key)) is not None})

    with pytest.raises(ConnectionError):
        await copy.follow(seen)
    return found


@pytest.mark.parametrize("away", [0.4 * KEPT, 0.6 * KEPT])
async def test_a_copy_that_was_cut_off_for_too_long_is_replaced(monkeypatch: pytest.MonkeyPatch, away: float) -> None:
    broker, copy = Broker(monkeypatch), GroupCopy(KafkaSettings())
    assert copy.folder is None
    assert await run(copy) == [OLD]
    before = copy.folder
    assert before is not None
    broker.now += away
    broker.records = [(BEGUN, b"1")] * 3  # the group has ended meanwhile, and its tombstone with it
    assert await run(copy) == [OLD if away < KEPT / 2 else NEW]
    assert broker.asked == [0, 2 if away < KEPT / 2 else 0]
    assert (copy.folder == before) == (away < KEPT / 2)
    assert before.exists(), "a request may still read it"
    copy.close()
    assert not before.exists()


async def test_a_copy_that_was_cut_off_while_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on, unless it was begun too long ago; the other one may have been cut off for any time."""
    broker, copy = Broker(monkeypatch), GroupCopy(KafkaSettings())
    broker.records = [(GROUP, b"1"), (name_key("other"), b"1"), (name_key("more"), b"1"), (BEGUN, b"1")]
    broker.ends = 2
    assert await run(copy) == []
    broker.now += 0.6 * KEPT
    broker.records[0] = (name_key("less"), b"1")  # the group has ended meanwhile, and its tombstone with it
    assert await run(copy) == []
    broker.now += 0.4 * KEPT
    broker.ends = None
    assert await run(copy) == [NEW]
    assert broker.asked == [0, 0, 2]
    broker.now, broker.ends = broker.now + KEPT, 1
    assert await run(copy) == []
    broker.now, broker.ends = broker.now + 0.4 * KEPT, None
    assert await run(copy) == [NEW]
    assert broker.asked[3:] == [0, 1]
    copy.close()
