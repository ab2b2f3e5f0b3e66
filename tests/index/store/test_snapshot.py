"""Snapshots of a store: one moment for a reader, and no hindrance to erasing."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.waiting import PATIENCE

from stream_lsh.errors import StoreError
from stream_lsh.index.store.rocksdb import GROUP, Store
from stream_lsh.index.store.snapshot import Snapshots

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
