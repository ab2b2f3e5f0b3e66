"""The copy of the groups that `serve` has of a pipeline, without a broker: what becomes of it when it is cut off."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from support.copies import FIELDS, SURE, copies
from support.group_tables import batches, check_tables

from stream_lsh.documents.builder import Builder
from stream_lsh.embedded import group_ranking
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.group_store import FACT
from stream_lsh.index.store.rocksdb import name_key
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.serve.pipeline import copying
from stream_lsh.serve.pipeline.copying import GroupCopy
from stream_lsh.settings.model import Settings

KEPT = 1000.0  # seconds for which tombstones are kept
BEGUN, GROUP = name_key(FACT), name_key("group")
FACTS = b'{"latest":null}'
OLD, NEW = {BEGUN: FACTS, GROUP: b"1"}, {BEGUN: FACTS}


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
        monkeypatch.setattr(copying, "private", SimpleNamespace(learn=learn))
        monkeypatch.setattr(copying, "check_reading", lambda *_: None)

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
    assert copy.ranking is None
    assert await run(copy) == [OLD]
    before = copy._read
    assert before is not None and copy.ranking is before.ranking is not None
    broker.now += away
    broker.records = [(BEGUN, FACTS)] * 3  # the group has ended meanwhile, and its tombstone with it
    assert await run(copy) == [OLD if away < KEPT / 2 else NEW]
    assert broker.asked == [0, 2 if away < KEPT / 2 else 0]
    assert (copy._read is before) == (away < KEPT / 2)
    assert before.path.exists(), "a request may still read it"
    copy.close()
    assert not before.path.exists()


async def test_a_copy_that_was_cut_off_while_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on, unless it was begun too long ago; the other one may have been cut off for any time."""
    broker, copy = Broker(monkeypatch), GroupCopy(KafkaSettings())
    broker.records = [(GROUP, b"1"), (name_key("other"), b"1"), (name_key("more"), b"1"), (BEGUN, FACTS)]
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


@pytest.mark.parametrize("seed", range(2))
def test_tables_of_a_copy_are_those_of_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Also if commits are read in pieces, if the copy was up to date in the middle of one, and if records are read
    again."""
    monkeypatch.setattr(copying, "MOST_CHANGES", 3)
    monkeypatch.setattr(group_ranking, "_MOST_NOTED", 0)
    chance, changelog = random.Random(seed), list[Any]()
    engine = Engine.open(Settings(**SURE | FIELDS), tmp_path / "index", groups=True)
    assert engine.groups is not None
    for some in batches(copies(seed, 300), 25):
        builder = Builder(engine.fields)
        for record in some:
            builder.add(record)
        engine.add(builder.columns())
        facts, values, _ = engine.groups.take()
        engine.index.commit(facts, values)
        changelog += [*values.items(), (BEGUN, orjson.dumps(facts[FACT]))]
    engine.close()
    folder, at, compared = copying._Folder(), 0, 0
    while at < len(changelog):
        end = at + chance.choice((1, 7, 60))
        records = [SimpleNamespace(key=key, value=value) for key, value in changelog[at:end]]
        folder.write(records)  # type: ignore[arg-type]
        if at > len(changelog) // 3:
            folder.rank()
        if folder.ranking is not None and changelog[at:end][-1][0] == BEGUN:
            check_tables(folder.store, [folder.ranking])
            compared += 1
        at = max(0, end - 40) if chance.random() < 0.3 and end < len(changelog) else end
    assert compared
    folder.close()
