"""An index is read beside the process that writes it: always as it was committed at some time, and never otherwise."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.feeds import WORDS, nasty
from support.indexes import asked, fed, once, opened
from support.long_form import LONG

from stream_lsh.documents.document import Document
from stream_lsh.errors import DamagedError, StoreError
from stream_lsh.index.index import Index
from stream_lsh.index.store.files import looking
from stream_lsh.settings.model import Settings

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


def test_nothing_goes_while_somebody_is_opening(tmp_path: Path) -> None:
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
