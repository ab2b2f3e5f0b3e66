"""Batches, commits and openings that break off: what was committed is kept, nothing else counts, nothing stays open."""

from __future__ import annotations

import gc
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_lsh import Deduplicator, Document, Settings, Verdict
from stream_lsh import api as module
from stream_lsh.embedded.information import information
from stream_lsh.errors import StateError
from stream_lsh.index.ids import Ids
from stream_lsh.index.index import Index
from stream_lsh.index.postings import Postings
from stream_lsh.index.rows import RowTable
from stream_lsh.index.shard import Shard
from stream_lsh.index.store import Store, name_key

BATCH = 40
SMALL = {"memory_documents": 16}  # every commit flushes


def stream(n: int) -> list[Document]:
    chance = random.Random(7)
    texts = [[f"w{chance.randrange(300)}" for _ in range(30)] for _ in range(5)]
    out: list[Document] = []
    for number in range(n):
        words = list(chance.choice(texts))
        words[chance.randrange(30)] = f"w{chance.randrange(300)}"
        texts.append(words)
        out.append(chance.choice(out) if out and chance.random() < 0.05 else Document(number, " ".join(words)))
    return out


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


def goes_on(folder: Path, whole: list[Verdict], documents: list[Document], settings: Settings) -> int:
    """The index answers from its last commit on like an undisturbed one; returns how many documents it holds back."""
    with Deduplicator(settings, folder) as found:
        done = found._seq
        assert list(found.process(documents[done:], batch=BATCH)) == whole[done:]
    assert information(folder, check=True)["health"]["problems"] == []  # type: ignore[index]
    return done


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    ("owner", "name", "breaks"),
    [
        (Shard, "keep", StateError),
        (Shard, "keep", KeyboardInterrupt),
        (Ids, "add", KeyboardInterrupt),
        (module, "judge", KeyboardInterrupt),
    ],
)
def test_a_batch_that_breaks_off_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, breaks: type[BaseException], shards: int
) -> None:
    """Its rows, or some of them, are in memory: neither a commit nor closing may write them down."""
    monkeypatch.setattr(module, "COMMIT_SECONDS", 0)
    settings, documents = Settings(shards=shards, **SMALL), stream(6 * BATCH)
    with Deduplicator(settings) as found:
        whole = list(found.process(documents, batch=BATCH))

    def broken(*_: object) -> None:
        raise breaks

    with Deduplicator(settings, tmp_path) as found:
        assert list(found.process(documents[: 2 * BATCH], batch=BATCH)) == whole[: 2 * BATCH]
        with monkeypatch.context() as patch, pytest.raises(breaks):
            patch.setattr(owner, name, broken)
            list(found.process(documents[2 * BATCH :], batch=BATCH))
        for use in (found.commit, lambda: list(found.process(documents[:1])), lambda: found.query("a text")):
            with pytest.raises(StateError, match=r"broken off.*make a new one"):
                use()
    assert goes_on(tmp_path, whole, documents, settings) == 2 * BATCH


@pytest.mark.parametrize("shards", [1, 3])
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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    after: bool,
    committed: int,
    shards: int,
) -> None:
    """It is on disk whole or not at all, whatever the shards believe; closing adds nothing."""
    monkeypatch.setattr(module, "COMMIT_SECONDS", 0)
    settings, documents = Settings(shards=shards, **SMALL), stream(6 * BATCH)
    with Deduplicator(settings) as found:
        whole = list(found.process(documents, batch=BATCH))
    with Deduplicator(settings, tmp_path) as found:
        list(found.process(documents[: 2 * BATCH], batch=BATCH))
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(owner, name, breaking(getattr(owner, name), 1, after=after))
            list(found.process(documents[2 * BATCH :], batch=BATCH))
        with pytest.raises(StateError, match="broken off"):
            found.commit()
        with pytest.raises(StateError, match=f"a commit of the index in {tmp_path} was broken off: open it again"):
            found._index.commit({})
    assert goes_on(tmp_path, whole, documents, settings) == (2 + committed) * BATCH


def test_closing_lets_what_was_flushed_at_opening_count(tmp_path: Path) -> None:
    """Also where nothing is committed: the manifest and the checksums that belong to it."""
    settings = Settings(**SMALL)
    with Deduplicator(settings, tmp_path) as found:
        list(found.process(stream(100)))
    shutil.rmtree(tmp_path / "postings")
    store = Store(tmp_path / "db")
    store.write({}, [name_key("flush/0/0")])  # as if the flush had not been committed
    store.close()
    with Deduplicator(settings, tmp_path, read_only=True):
        pass
    assert information(tmp_path, check=True)["health"]["problems"] == []  # type: ignore[index]


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
@pytest.mark.parametrize(("owner", "name"), [(Ids, "restore"), (RowTable, "_check")])
def test_an_opening_that_fails_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """The second shard fails, after the first has started to write what it flushed."""
    settings = Settings(shards=2, **SMALL)
    with Deduplicator(settings, tmp_path) as found:
        list(found.process(stream(200)))
    del found  # it has its runs open as long as it lives
    shutil.rmtree(tmp_path / "postings")
    before = set(threading.enumerate())
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, breaking(getattr(owner, name), 2, after=True))
        Index(settings, tmp_path)
    assert set(threading.enumerate()) <= before
    gc.collect()  # a run's file is closed when nobody holds it any more
    assert files_of(tmp_path) == set()
