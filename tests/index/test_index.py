"""Openings and commits that break off: what was committed is kept, nothing else counts, nothing stays open."""

import gc
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.feeds import WORDS, nasty
from support.in_memory import temporary_folder
from support.indexes import fed, once, opened
from support.long_form import rotating

from stream_lsh.documents.document import Document
from stream_lsh.errors import StoreError
from stream_lsh.index.index import Index
from stream_lsh.index.postings.runs import Postings
from stream_lsh.index.rows.ids import Ids
from stream_lsh.index.rows.row_file import RowFile
from stream_lsh.index.shard import Shard
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.settings.model import Settings

BATCH, N = 40, 240
FEED = nasty(7, N, words=WORDS[:60])
Whole = tuple[Settings, list[dict[str, Any]]]


def settings_of(shards: int) -> Settings:
    """Everything that is committed is flushed."""
    more = {} if shards == 1 else {"compare_with": "all", "shards": shards}
    return Settings(memtable_documents=16, segment_documents=90, **more)


@pytest.fixture(scope="module", params=[1, pytest.param(3, marks=pytest.mark.long)], ids=["1 shard", "3 shards"])
def whole(request: pytest.FixtureRequest) -> Whole:
    """Settings, and the verdicts of an index that nothing disturbs."""
    settings = settings_of(request.param)
    with temporary_folder() as folder:
        return settings, once(FEED, settings, folder, BATCH)


def breaking(method: Callable[..., Any], at: int, *, after: bool = False) -> Callable[..., Any]:
    """The method, but its call number `at` breaks off, before or after what it does."""
    calls = 0

    def called(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at and not after:
            raise KeyboardInterrupt
        result = method(*arguments, **options)
        if calls == at:
            raise KeyboardInterrupt
        return result

    return called


def goes_on(folder: Path, whole: list[dict[str, Any]]) -> int:
    """The index answers from its last commit on like an undisturbed one; returns how many documents it holds back."""
    with opened(Settings(), folder) as index:
        done = (index.store.named("feed") or {"next": 0})["next"]
        assert fed(index, FEED[done:], done, BATCH) == whole[done:]
        index.commit({"feed": {"next": N}})
    return int(done)


@pytest.mark.parametrize(
    ("owner", "name", "after", "committed"),
    [
        (Shard, "take", False, 0),
        (Shard, "take", True, 0),
        (Store, "write", False, 0),
        (Store, "write", True, 1),
        (Postings, "committed", False, 1),
        (Shard, "flush", False, 1),
        (Postings, "add", True, 1),
    ],
)
def test_a_commit_that_breaks_off_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, after: bool, committed: int, whole: Whole
) -> None:
    """It is on disk whole or not at all, whatever the shards believe; closing adds nothing."""
    settings, verdicts = whole
    with opened(settings, tmp_path) as index:
        for at in (0, BATCH):
            fed(index, FEED[at : at + BATCH], at, BATCH)
            index.commit({"feed": {"next": at + BATCH}})
        fed(index, FEED[2 * BATCH : 3 * BATCH], 2 * BATCH, BATCH)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(owner, name, breaking(getattr(owner, name), 1, after=after))
            index.commit({"feed": {"next": 3 * BATCH}})
        with pytest.raises(StoreError, match=f"a commit of the index in {index.folder} was broken off: open it again"):
            index.commit({})
    assert goes_on(tmp_path, verdicts) == (2 + committed) * BATCH


def test_a_segment_that_was_not_committed_never_began(tmp_path: Path) -> None:
    """What was lost had begun the next segment behind the last committed row; what comes instead is of this one."""
    settings = Settings(segment_documents=10, memtable_documents=16, shingles="words:1")
    documents = [Document(i, " ".join(WORDS[9 * i : 9 * i + 9])) for i in range(30)]
    with opened(settings, tmp_path) as index:
        fed(index, documents[:8], 0, 8)
        index.commit({})
        fed(index, [documents[0], documents[1], documents[20]], 8, 3)
    with opened(settings, tmp_path) as index:
        fed(index, documents[8:], 8, 3)
        index.commit({})
    with opened(settings, tmp_path) as index:
        assert [(g.number, g.first) for g in index.shards[0].segments] == [(0, 0), (1, 10), (2, 20)]
        assert {verdict["kind"] for verdict in fed(index, documents, 30, 30)} == {"redelivered"}


def test_each_index_has_a_key_of_its_own(tmp_path: Path) -> None:
    keys = set()
    for name in "abc":
        once(FEED[:5], Settings(), tmp_path / name)
        store = Store(tmp_path / name / "db", read_only=True)
        keys.add(store.named("index")["key"])
        store.close()
    assert len(keys) == 3 and all(len(bytes.fromhex(key)) == 16 for key in keys)


def files_of(folder: Path) -> set[str]:
    """Files of a folder that this process has open."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found.add(descriptor.readlink())
        except FileNotFoundError:  # the one that reads the folder
            continue
    return {path.name for path in found if path.is_relative_to(folder)}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are read from /proc")
@pytest.mark.parametrize(
    ("owner", "name", "read_only"),
    [
        (RowFile, "_check", False),
        *rotating([(Ids, "restore", False), (RowFile, "_check", True), (Ids, "restore", True)], 1),
    ],
)
def test_an_opening_that_fails_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, read_only: bool
) -> None:
    """The second shard fails, after the first has started to write what it flushed."""
    once(FEED, settings_of(2), tmp_path)
    gc.collect()
    assert files_of(tmp_path) == set()
    if not read_only:
        for folder in tmp_path.glob("segments/*/postings"):
            shutil.rmtree(folder)
    before = set(threading.enumerate())
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, breaking(getattr(owner, name), 2, after=True))
        Index(Settings(), tmp_path, read_only=read_only)
    assert set(threading.enumerate()) <= before
    gc.collect()  # a run's file is closed when nobody holds it any more
    assert files_of(tmp_path) == set()
