"""The store: what is deleted leaves the disk, keys are found by rows, folders are durable, one cache for all."""

import os
import random
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from support.feeds import WORDS, nasty
from support.indexes import fed, opened
from support.waiting import PATIENCE, until

from stream_lsh.errors import DamagedError, StoreError
from stream_lsh.index.index import Index
from stream_lsh.index.store import column_families
from stream_lsh.index.store import files as files_module
from stream_lsh.index.store.files import checksum, disk_bytes, fill, make_folder
from stream_lsh.index.store.rocksdb import ANSWERS, GROUP, IDS, ROWS, TEXTS, Store, name_key, rows_key
from stream_lsh.index.store.snapshot import Snapshots
from stream_lsh.settings.model import Settings

VALUE = 200_000  # bytes
FACTS = b"m"  # JSON values by name


def test_the_space_of_deleted_answers_returns(tmp_path: Path) -> None:
    """Those of a replica come and go: 100 MB were written, and everywhere among them some are kept, 13 MB in all."""
    store, chance = Store(tmp_path / "db", sync=False), random.Random(1)
    try:
        for number in range(500):
            values = {rows_key(ANSWERS, 0, 0, number): chance.randbytes(VALUE)}
            old = number - 40
            store.write(values, [rows_key(ANSWERS, 0, 0, old)] if old >= 0 and old % 20 else [])
        assert store.numbers(ANSWERS, 0) == [*range(0, 460, 20), *range(460, 500)]
    finally:
        store.close()
    store = Store(tmp_path / "db", sync=False)  # what is to be written again is written by whoever opens it
    try:
        until(lambda: disk_bytes(tmp_path) < 60_000_000)  # RocksDB does it in the background
    finally:
        store.close()


def test_texts_are_not_written_again(tmp_path: Path) -> None:
    """Those of a shard are written from the front to the back: files are moved as they are, and not merged."""
    store, chance = Store(tmp_path / "db", sync=False), random.Random(2)
    try:
        first: set[str] = set()
        for number in range(480):
            row = 10 * number
            store.write({rows_key(IDS, 0, 0, row): b"id", rows_key(TEXTS, 0, 0, row): chance.randbytes(VALUE)})
            files = {path.name for path in (tmp_path / "db").glob("*.sst") if path.stat().st_size > 5 * VALUE}
            assert first <= files
            first = files
        assert len(files) > 10
    finally:
        store.close()


def test_a_range_of_rows_is_deleted_with_what_takes_its_place(tmp_path: Path) -> None:
    store = Store(tmp_path / "db", sync=False)
    try:
        store.write({rows_key(ROWS, shard, 0, row): b"old" for shard in (0, 1) for row in range(0, 100, 10)})
        ranges = [(rows_key(ROWS, 0, 0, 0), rows_key(ROWS, 0, 0, 50))]
        store.write({name_key("x"): b"1", rows_key(ROWS, 0, 0, 30): b"new"}, ranges=ranges)
        assert store.holding(ROWS, 0, 0, 35) == (30, b"new")  # ranges go first
        assert store.holding(ROWS, 0, 0, 55) == (50, b"old")
        assert store.holding(ROWS, 1, 0, 45) == (40, b"old")
        with pytest.raises(DamagedError, match="row 29 of shard 0 is missing; restore"):
            store.holding(ROWS, 0, 0, 29)
        store.write({}, ranges=[(rows_key(IDS, 0, 5, 0), rows_key(IDS, 0, 5, 9))])  # of a family that is not there
    finally:
        store.close()


@pytest.mark.parametrize("others", [(), (1,), (7,), (7, 9)])
@pytest.mark.parametrize("kind", [IDS, GROUP])
def test_what_was_written_over_is_purged(tmp_path: Path, kind: bytes, others: tuple[int, ...]) -> None:
    """Also where its file has no other key, or it is the first one there: RocksDB would just move such files."""
    store = Store(tmp_path / "db", sync=False)
    key = rows_key(kind, 0, 0, 5)
    store.write({rows_key(kind, 0, 0, row): b"of others" for row in others} | {key: b"what was there"})
    store.flush([key])
    store.write({key: b"what is there"})
    store.flush([key])
    if kind == IDS:
        store.purge([key])
    store.sweep([(key, key + b"\0")] if kind == GROUP else [])
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert (b"what was there" in files, b"what is there" in files) == (False, True)
    assert store.value(key) == b"what is there"
    store.close()


def test_segments_do_not_meet(tmp_path: Path) -> None:
    """A value is found from its row backwards, and never in another segment, shard or kind."""
    store = Store(tmp_path / "db", sync=False)
    try:
        for number in (0, 3):
            store.write({rows_key(IDS, 1, number, 100 * number): b"%d" % number})
        assert store.holding(IDS, 1, 3, 999) == (300, b"3")
        assert store.holding(IDS, 1, 0, 999) == (0, b"0")
        for kind, shard, number, row in (
            (IDS, 1, 3, 299),
            (IDS, 0, 3, 999),
            (IDS, 2, 3, 999),
            (TEXTS, 1, 3, 999),
            (IDS, 1, 1, 999),
        ):
            with pytest.raises(DamagedError, match="is missing"):
                store.holding(kind, shard, number, row)
    finally:
        store.close()


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        (GROUP, lambda store: store.scan(GROUP)),
        (IDS, lambda store: store.rows_of(IDS, 0, 0)),
        (ROWS, lambda store: store.numbers(ROWS, 0)),
        (FACTS, lambda store: store.items("x")),
        (IDS, lambda store: [store.last(rows_key(IDS, 0, 0, row)) for row in range(2000)]),
    ],
    ids=["scan", "rows_of", "numbers", "items", "last"],
)
def test_a_damaged_block_is_no_end(tmp_path: Path, kind: bytes, read: Callable[[Store], Iterable[object]]) -> None:
    """RocksDB's cursor stops there, like one that has read everything."""
    store, chance = Store(tmp_path / "db"), random.Random(3)
    keys = [name_key(f"x{n:04}") if kind == FACTS else rows_key(kind, 0, 0, n) for n in range(2000)]
    store.write({key: b"%d" % chance.getrandbits(600) for key in keys})
    store.flush(keys)
    store.shorten(wait=True)
    store.close()
    path = max((tmp_path / "db").glob("*.sst"), key=lambda path: path.stat().st_size)
    undamaged = path.read_bytes()
    at = len(undamaged) // 3
    path.write_bytes(undamaged[:at] + bytes([undamaged[at] ^ 1]) + undamaged[at + 1 :])
    store = Store(tmp_path / "db")
    with pytest.raises(DamagedError, match=rf"cannot be read: Corruption: .*{path.name}.*restore {store.path} from a"):
        list(read(store))
    store.close()
    path.write_bytes(undamaged)
    store = Store(tmp_path / "db")
    assert len(list(read(store))) == 2000
    store.close()


def test_the_names_of_files_are_durable_before_a_commit_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut loses each name that was given, by a rename or a new file, since its folder was synced."""
    durable, write, sync = defaultdict[Path, set[str]](set), Store.write, os.fsync
    listed = set[Path]()

    def note(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        names = {each.name for each in path.iterdir()} if path.is_dir() else set()
        sync(fd)
        durable[path] |= names

    def check(store: Store, values: Mapping[bytes, bytes | None], *more: Any, **others: Any) -> None:
        for item in orjson.loads(values.get(name_key("shard/0")) or b'{"segments":[]}')["segments"]:
            if item["runs"]:
                folder = store.path.parent / "segments" / f"{item['number']:06d}"
                assert {"postings", "rows-0.bin"} <= durable[folder]
                assert {run["file"] for run in item["runs"]} <= durable[folder / "postings"]
                assert folder.name in durable[folder.parent]
                listed.update(folder / "postings" / run["file"] for run in item["runs"])
        write(store, values, *more, **others)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(Store, "write", check)
    feed = nasty(17, 300, words=WORDS[:80])
    with opened(Settings(memtable_documents=16, segment_documents=150), tmp_path / "index") as index:
        for at in range(0, 300, 30):
            fed(index, feed[at : at + 30], at, 30)
            index.commit({})
    assert len(listed) > 8


def test_folders_are_made_with_all_their_names_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder's name is in the folder above: that one is synced, for each one that is made."""
    synced = []
    sync = os.fsync

    def note(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        sync(fd)

    monkeypatch.setattr(files_module.os, "fsync", note)
    make_folder(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    make_folder(tmp_path / "a" / "b" / "c")
    assert len(synced) == 3
    synced.clear()
    index = Index(Settings(), tmp_path / "x" / "state")
    index.close()
    assert synced[:2] == [tmp_path, tmp_path / "x"]


def test_a_folder_above_that_may_not_be_read_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(files_module, "sync_folder", refuse)
    make_folder(tmp_path / "a")
    assert (tmp_path / "a").is_dir()


def test_a_checksum_of_what_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3_000_000)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert checksum(fd, 0, 3_000_000) is not None
        assert checksum(fd, 1, 3_000_000) is None
        assert checksum(fd, 0, 0) == 0
    finally:
        os.close(fd)


def test_a_short_read_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, preadv = random.Random(1).randbytes(2_500_000), os.preadv
    path = tmp_path / "file"
    path.write_bytes(data)
    monkeypatch.setattr(os, "preadv", lambda file, views, at: preadv(file, [views[0][:10_000]], at))
    found = bytearray(30_000)
    with path.open("rb") as file:
        assert fill(file.fileno(), 12_345, memoryview(found)) and found == data[12_345:42_345]
        assert not fill(file.fileno(), len(data) - 29_999, memoryview(found))
        assert checksum(file.fileno(), 12_345, 2_400_000) == zlib.crc32(data[12_345:2_412_345])


def test_a_segment_is_removed_with_its_files_and_its_log(tmp_path: Path) -> None:
    path = tmp_path / "db"
    store = Store(path, sync=False)
    try:
        for segment in range(3):
            value = os.urandom(200_000)
            store.write({rows_key(TEXTS, 0, segment, 10 * segment): value, name_key("n"): b"%d" % segment})
        store.write({name_key(f"flush/0/{segment}/7"): b"1" for segment in (0, 1, 10)})
        store.write({}, ranges=[(name_key("flush/0/1/"), name_key("flush/0/10"))])  # of the default family, too
        assert [name for name, _ in store.items("flush/")] == ["flush/0/0/7", "flush/0/10/7"]
        assert sorted(store.segments()) == [0, 1, 2]
        for segment in (0, 1, 1):
            store.drop(segment)
        store.shorten()
        assert store.segments() == [2]
        assert store.before(TEXTS, 0, 1, 10) is None
        assert store.named("n") == 2
    finally:
        store.close()
    assert sum(file.stat().st_size for file in path.iterdir()) < 400_000
    store = Store(path, sync=False)
    try:
        assert store.segments() == [2]
        assert store.holding(TEXTS, 0, 2, 29) == (20, value)
        assert store.named("n") == 2
    finally:
        store.close()


SEGMENTS, VALUES, VALUE_BYTES = 8, 64, 8_192
LIMIT = 1 << 20


@pytest.fixture
def small_cache() -> Iterator[None]:
    column_families.limit_cache(LIMIT)
    yield
    column_families.limit_cache(32 << 20)


@pytest.mark.usefixtures("small_cache")
def test_memory_does_not_grow_with_segments(tmp_path: Path) -> None:
    """Ids of eight segments, half a megabyte each, are read: together the cached blocks stay below the limit."""
    noise = np.random.default_rng(1).bytes(VALUE_BYTES)
    store = Store(tmp_path / "db", sync=False)
    try:
        for segment in range(SEGMENTS):
            store.write({rows_key(IDS, 0, segment, row): noise for row in range(VALUES)})
        store.shorten(wait=True)
        held = []
        for segment in range(SEGMENTS):
            assert sum(len(value) for _, value in store.rows_of(IDS, 0, segment)) == VALUES * VALUE_BYTES
            held.append(column_families._BLOCKS.get_usage())
    finally:
        store.close()
    assert held[0] > VALUES * VALUE_BYTES // 2  # the cache is used
    assert max(held) <= 2 * LIMIT


KEYS = [GROUP + bytes([0] * 7 + [number]) for number in range(4)]


def test_a_snapshot_shows_one_moment_and_keeps_nothing_that_is_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, settling, settle = Store(tmp_path / "db"), threading.Event(), Snapshots.settle

    def settled(snapshots: Snapshots) -> None:
        settling.set()
        settle(snapshots)

    monkeypatch.setattr(Snapshots, "settle", settled)
    with store.snapshot(GROUP) as nothing:
        assert (nothing.value(KEYS[0]), list(nothing.scan(GROUP)), nothing.last(KEYS[3])) == (None, [], None)
    before = {KEYS[0]: b"a secret", KEYS[2]: b"another"}
    store.write(before)
    store.flush(KEYS)
    with ThreadPoolExecutor(1) as pool:
        with store.snapshot(GROUP) as view:
            store.write({KEYS[0]: b"erased", KEYS[1]: b"new"}, deleted=[KEYS[2]])
            store.flush(KEYS)
            erasing = pool.submit(store.rewrite, [(KEYS[0], KEYS[3])])
            assert settling.wait(PATIENCE), "erasing waits for readers"
            assert [view.value(key) for key in KEYS] == [b"a secret", None, b"another", None]
            assert dict(view.scan(GROUP)) == before
            assert view.last(KEYS[3]) == (KEYS[2], b"another") and view.last(KEYS[1]) == (KEYS[0], b"a secret")
        erasing.result()
    with store.snapshot(GROUP) as view:
        assert list(view.scan(GROUP)) == [(KEYS[0], b"erased"), (KEYS[1], b"new")]
    store.close()
    assert not any(b"secret" in file.read_bytes() for file in (tmp_path / "db").glob("*.sst"))
    with pytest.raises(StoreError, match="is closed"), store.snapshot(GROUP):
        pass
