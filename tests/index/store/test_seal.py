"""Files of the index that were lost or cut are noticed before RocksDB makes an empty database of the rest."""

import os
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from stream_lsh.embedded.information import information
from stream_lsh.errors import StoreError
from stream_lsh.index.index import Index
from stream_lsh.index.store import seal
from stream_lsh.index.store.rocksdb import TEXTS, Store, name_key, rows_key
from stream_lsh.settings.model import Settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with closing(Index(Settings(), tmp_path)) as index:  # durable, or there is no seal
        index.commit({"job": {"next_seq": 0}})
    return tmp_path


def damaged(folder: Path, pattern: str) -> Path:
    (path,) = (folder / "db").glob(pattern)
    return path


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path, at: int = -3) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("pattern", "damage", "said"),
    [
        *((pattern, Path.unlink, "is missing.*backup") for pattern in ("MANIFEST-*", "CURRENT", "*.sst", "*.log")),
        *((pattern, cut, "is damaged.*backup") for pattern in ("MANIFEST-*", "CURRENT", "*.sst")),
        ("MANIFEST-*", flip, "is damaged: its checksum"),
    ],
)
def test_a_file_that_is_missing_cut_off_or_changed_is_named(
    folder: Path, pattern: str, damage: Callable[[Path], None], said: str
) -> None:
    path = damaged(folder, pattern)
    damage(path)
    for look in (lambda: Index(Settings(), folder), lambda: information(folder)):
        with pytest.raises(StoreError, match=f"{path} {said}"):
            look()


def test_an_empty_store_with_postings_is_no_new_index(folder: Path) -> None:
    """Without a seal, as after a crash: RocksDB opens a cut MANIFEST as an empty database."""
    (folder / "db.sealed").unlink()
    path = damaged(folder, "MANIFEST-*")
    os.truncate(path, 60)
    with pytest.raises(StoreError, match=r"damaged|cannot be read"):
        Index(Settings(), folder)


def test_data_without_current_is_no_new_index(folder: Path) -> None:
    (folder / "db.sealed").unlink()
    (folder / "db" / "CURRENT").unlink()
    with pytest.raises(StoreError, match="CURRENT is missing"):
        Index(Settings(), folder)


def test_an_open_store_has_no_seal_and_a_broken_seal_means_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "db")
    assert not (tmp_path / "db.sealed").exists()
    store.write({name_key("x"): b"1"})
    seal.write(tmp_path / "db.other")  # not a store: no seal, no error
    store.close()
    (tmp_path / "db.sealed").write_bytes(b'{"CURRENT": [1')
    store = Store(tmp_path / "db")
    assert store.named("x") == 1
    store.close()


def test_a_checksum_error_is_not_taken_for_a_lock(folder: Path) -> None:
    path = damaged(folder, "*.sst")
    content = bytearray(path.read_bytes())
    for at in range(0, len(content) // 2):
        content[at] ^= 0x5A
    path.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        Index(Settings(), folder)
    assert "another process" not in str(caught.value)


def test_check_reads_the_store_too(folder: Path) -> None:
    store = Store(folder / "db")
    store.write({rows_key(TEXTS, 0, 0, 0): random.Random(1).randbytes(100_000)})
    store.close()
    path = max((folder / "db").glob("*.sst"), key=lambda path: path.stat().st_size)
    assert path.stat().st_size > 100_000
    flip(path, path.stat().st_size // 2)
    facts = information(folder, check=True)
    assert "db cannot be read" in str(facts["health"]) or "Corruption" in str(facts["health"])


def test_looking_at_a_folder_makes_no_store(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    with pytest.raises(StoreError, match="there is no index"):
        information(tmp_path)
    assert not list((tmp_path / "db").iterdir())
