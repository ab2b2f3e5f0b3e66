"""What was deleted or replaced is known to readers, beside a writer and later; what cannot be deleted is refused."""

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.feeds import START, WORDS, nasty
from support.in_memory import temporary_folder
from support.indexes import asked, fed, once, opened, verdicts_of
from support.long_form import LONG, rotating

from stream_lsh.documents.builder import columns
from stream_lsh.documents.document import Document
from stream_lsh.embedded.information import information
from stream_lsh.errors import DamagedError, StoreError, UsageError
from stream_lsh.index.index import Index
from stream_lsh.index.rows.deleted_rows import CHUNK
from stream_lsh.index.store import rocksdb
from stream_lsh.index.store.files import looking
from stream_lsh.index.store.rocksdb import DELETED_MARKS, Store, rows_key
from stream_lsh.settings.model import Settings

FEED = [Document(str(i), f"{i} {i} {i + 1}", time=START) for i in range(CHUNK + 5)]
SAID = "the marks of deleted rows of shard 0 are damaged; restore the folder from a backup"


def met(index: Index, text: str) -> int:
    """How many documents are similar to a text."""
    (found,) = index.query(index.sign(columns([Document("new", text)])))
    return len(found.row)


@pytest.fixture(scope="module")
def gone() -> Iterator[Path]:
    """An index in whose first and second chunk of bits something was deleted, before its last commit."""
    settings = Settings(
        shingles="words:1", bands=4, rows=1, signature_size=16, segment_documents=1000, on_conflict="update"
    )
    with temporary_folder() as folder:
        with opened(settings, folder) as index:
            verdicts_of(index, [*FEED, Document("7", "x y z"), Document(str(CHUNK + 1), deleted=True)], 0)
            index.commit({})
            verdicts_of(index, [Document("8", deleted=True)], CHUNK + 7)
            with opened(Settings(), folder, read_only=True) as reader:
                assert (reader.count, index.count) == (CHUNK + 4, CHUNK + 3)
                texts = [FEED[7].text or "", FEED[8].text or "", FEED[CHUNK + 1].text or "", "x y z"]
                assert [met(reader, text) for text in texts] == [0, 1, 0, 1]
                assert [met(index, text) for text in texts] == [0, 0, 0, 1]
        yield folder


def test_deleted_rows_are_deleted_in_later_processes(gone: Path) -> None:
    with opened(Settings(), gone) as index:
        assert index.count == CHUNK + 4
        assert [met(index, FEED[i].text or "") for i in (6, 7, 8, CHUNK, CHUNK + 1)] == [1, 0, 1, 1, 0]
    facts: Any = information(gone, check=True)
    assert (facts["documents"]["stored"], facts["health"]["problems"]) == (CHUNK + 4, [])


@pytest.mark.parametrize("damage", ["lost", *rotating(["changed", "of rows that are not there"], 1)])
def test_damaged_marks_of_deleted_rows(gone: Path, tmp_path: Path, damage: str) -> None:
    folder = shutil.copytree(gone, tmp_path / "index")
    store = Store(folder / "db")
    ((row, bits),) = store.rows_of(DELETED_MARKS, 0, 4)
    assert row == CHUNK
    key = rows_key(DELETED_MARKS, 0, 4, row)
    if damage == "lost":
        store.write({}, ranges=[(key, key + b"\0")])
    else:
        store.write({key: bits + b"\1" if damage == "changed" else b"\0" * CHUNK + b"\1"})
    store.close()
    facts: Any = information(folder, check=True)
    assert [SAID in problem for problem in facts["health"]["problems"]] == [True]
    for more in ({}, {"read_only": True}):
        with pytest.raises(DamagedError, match=SAID), opened(Settings(), folder, **more):
            pass


@pytest.mark.parametrize("shards", [1, 2])
def test_an_empty_batch_may_come_first(tmp_path: Path, shards: int) -> None:
    with opened(Settings(on_conflict="update", shards=shards), tmp_path) as index:
        for batch in ([], [Document("a", "one two three four five six seven")], []):
            found = index.match(index.sign(columns(batch)), np.arange(index.count, index.count + len(batch)))
            assert [len(matches.status) for matches in found] == [len(batch)] * shards
        assert index.count == 1


def test_deletions_without_updates_are_refused(tmp_path: Path) -> None:
    for name, settings in (("one", Settings()), ("all", Settings(compare_with="all")), ("two", Settings(shards=2))):
        with opened(settings, tmp_path / name) as index:
            verdicts_of(index, [Document("a", "a b c", time=START)], 0)
            with pytest.raises(UsageError, match="nothing can be deleted from the index in"):
                verdicts_of(index, [Document("b", "a b c"), Document("a", deleted=True)], 1)
            assert index.count == 1


FEEDER = ("-m", "support.feeder")
SMALL: dict[str, Any] = {"memtable_documents": 64, "segment_documents": 500, "max_bucket_rows": 8, "max_matches": 3}


def check(index: Index, feed: list[Document], whole: list[dict[str, Any]], chance: random.Random) -> int:
    """Whether an index is that of the first documents, as many as it says; returns how many."""
    done = (index.store.named("feed") or {"next": 0})["next"]
    stored = [verdict for verdict in whole[:done] if verdict["kind"] not in ("rejected", "redelivered")]
    assert index.count == len(stored)
    if stored:
        # What is there is there, with its first verdict, its text, its matches; the rest is not.
        some = sorted(chance.sample(stored, min(len(stored), 60)), key=lambda verdict: verdict["seq"])
        for verdict, first in zip(asked(index, [feed[v["seq"]] for v in some]), some, strict=True):
            assert verdict["kind"] == "redelivered"
            for name, said in (
                ("first_kind", "kind"),
                ("duplicate_of", "duplicate_of"),
                ("similarity", "similarity"),
                ("group", "group"),
            ):
                assert verdict[name] == first[said]
        for verdict, first in zip(asked(index, [feed[v["seq"]] for v in some], known=False), some, strict=True):
            if first["kind"] == "unique":
                assert verdict["kind"] == "exact_duplicate"
    rest = feed[done : done + 25]
    if rest:
        # Of what comes next the first verdict is that of whoever writes.
        (answer,) = asked(index, rest[:1])
        expected = {**whole[done], "seq": None}
        if expected["kind"] == "unique":
            expected["group"] = answer["group"]
        assert answer == expected
    return int(done)


@pytest.mark.long
@pytest.mark.parametrize(("documents", "states"), [(60_000, 15) if LONG else (6_000, 4)])
def test_beside_a_process_that_writes(tmp_path: Path, documents: int, states: int) -> None:
    """It flushes, merges, begins segments and commits all the time."""
    feed = nasty(5, documents, words=WORDS[:60])
    whole = once(feed, Settings(**{**SMALL, "memtable_documents": 65536}), tmp_path / "whole", 1000)
    chance, seen = random.Random(1), []
    folder, looks = tmp_path / "index", tmp_path / "looks"
    looks.touch()
    command = [*FEEDER, folder, json.dumps(SMALL), "5", str(documents), "60", tmp_path / "out", looks, str(states)]
    with subprocess.Popen([sys.executable, *command]) as process:
        try:
            while process.poll() is None:
                if not (tmp_path / "begun").exists():
                    time.sleep(0.01)
                    continue
                with opened(Settings(max_matches=3), folder, read_only=True) as index:
                    seen.append(check(index, feed, whole, chance))
                looks.write_bytes(b"." * len(set(seen) - {0, documents}))
        finally:
            process.kill()
        assert process.wait() == 0
    assert seen == sorted(seen)
    assert len(set(seen) - {0, documents}) >= states
    with opened(Settings(max_matches=3), folder, read_only=True) as index:
        assert check(index, feed, whole, chance) == documents


def test_what_a_reader_has_open_stays(tmp_path: Path) -> None:
    """While the index beside it goes on, merges its files and deletes them; and it leaves nothing behind."""
    feed, settings = nasty(7, 900, words=WORDS[:60]), Settings(**{**SMALL, "memtable_documents": 16})
    whole = once(feed, settings, tmp_path / "whole")
    with opened(settings, tmp_path / "index") as writer:
        fed(writer, feed[:300], 0, 20)
        writer.commit({"feed": {"next": 300}})
        with opened(Settings(max_matches=3), tmp_path / "index", read_only=True) as reader:
            files = {run.path for g in reader.shards[0].segments for run in g.postings.runs if run.path}
            for at in range(300, 900, 30):
                assert fed(writer, feed[at : at + 30], at, 30) == whole[at : at + 30]
                writer.commit({"feed": {"next": at + 30}})
                assert check(reader, feed, whole, random.Random(at)) == 300
            for segment in writer.shards[0].segments:
                segment.postings.merged()
            writer.commit({})
            assert not all(path.exists() for path in files)
            assert check(reader, feed, whole, random.Random(0)) == 300
    with opened(Settings(max_matches=3), tmp_path / "index", read_only=True) as index:
        assert check(index, feed, whole, random.Random(0)) == 900


def test_what_changes_at_each_look_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of a log that was deleted meanwhile would be missing."""
    with opened(Settings(), tmp_path) as writer:
        writer.commit({})
        looks = iter([*range(20), 60, 60, *range(61, 1000)])
        monkeypatch.setattr(rocksdb, "_TRIES", 12)
        monkeypatch.setattr(rocksdb, "_manifests", lambda _: next(looks))
        Store(tmp_path / "db", read_only=True).close()
        with pytest.raises(StoreError, match="changes faster than it can be opened: try again later"):
            Store(tmp_path / "db", read_only=True)


def test_nothing_is_removed_while_a_process_is_opening(tmp_path: Path) -> None:
    """What a reader has read that counts is there until it has opened it; then it goes, also after a restart."""
    feed, settings = nasty(7, 900, words=WORDS[:60]), Settings(**{**SMALL, "memtable_documents": 16})

    def runs() -> set[Path]:
        return set((tmp_path / "index").rglob("run-*.bin"))

    def counted() -> set[Path]:
        shard = writer.shards[0]
        return {run.path for g in shard.segments for run in g.postings.runs if run.path}

    for restart in (False, True):
        writer = Index(settings, tmp_path / "index", durable=False)
        first = 450 * restart
        try:
            with looking(tmp_path / "index"):
                for at in range(first, first + 450, 30):
                    before = runs()
                    fed(writer, feed[at : at + 30], at, 30)
                    writer.commit({})
                    assert before <= runs()
                for segment in writer.shards[0].segments:
                    segment.postings.merged()
                writer.commit({})
                assert counted() < runs()
            if not restart:
                writer.commit({})
                assert counted() == runs()
        finally:
            writer.close()
        with opened(settings, tmp_path / "index") as writer:
            assert counted() == runs()


def test_there_must_be_an_index(tmp_path: Path) -> None:
    for folder in (tmp_path / "nothing", tmp_path):
        with pytest.raises(StoreError) as error:
            Index(Settings(max_matches=3), folder, read_only=True)
        assert "no index" in str(error.value) and not isinstance(error.value, DamagedError)
    assert list(tmp_path.iterdir()) == []
