"""Files of the index that were lost or cut are noticed before RocksDB makes an empty database of the rest."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stream_lsh.embedded.information import information
from stream_lsh.errors import StateError
from stream_lsh.index import seal
from stream_lsh.index.index import Index
from stream_lsh.index.store import TEXTS, Store, name_key, rows_key
from stream_lsh.settings import Settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    index = Index(Settings(), tmp_path)
    index.commit({"job": {"next_seq": 0}})
    index.close()
    return tmp_path


def damaged(folder: Path, pattern: str) -> Path:
    (path,) = (folder / "db").glob(pattern)
    return path


@pytest.mark.parametrize("pattern", ["MANIFEST-*", "CURRENT", "*.sst", "*.log"])
def test_a_missing_file_is_named(folder: Path, pattern: str) -> None:
    path = damaged(folder, pattern)
    path.unlink()
    for look in (lambda: Index(Settings(), folder), lambda: information(folder)):
        with pytest.raises(StateError, match=f"{path} is missing.*backup"):
            look()


@pytest.mark.parametrize("pattern", ["MANIFEST-*", "CURRENT", "*.sst"])
def test_a_file_cut_off_is_named(folder: Path, pattern: str) -> None:
    path = damaged(folder, pattern)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(StateError, match=f"{path} is damaged.*backup"):
        Index(Settings(), folder)


def test_a_changed_manifest_is_named(folder: Path) -> None:
    path = damaged(folder, "MANIFEST-*")
    content = bytearray(path.read_bytes())
    content[-3] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(StateError, match=f"{path} is damaged: its checksum"):
        Index(Settings(), folder)


def test_an_empty_store_with_postings_is_no_new_index(folder: Path) -> None:
    """Without a seal, as after a crash: RocksDB opens a cut MANIFEST as an empty database."""
    (folder / "db.sealed").unlink()
    path = damaged(folder, "MANIFEST-*")
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(StateError, match=r"damaged|cannot be read"):
        Index(Settings(), folder)


def test_data_without_current_is_no_new_index(folder: Path) -> None:
    (folder / "db.sealed").unlink()
    (folder / "db" / "CURRENT").unlink()
    with pytest.raises(StateError, match="CURRENT is missing"):
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
    with pytest.raises(StateError) as caught:
        Index(Settings(), folder)
    assert "another process" not in str(caught.value)


def test_check_reads_the_store_too(folder: Path) -> None:
    store = Store(folder / "db")
    store.write({rows_key(TEXTS, 0, 0, 0): random.Random(1).randbytes(100_000)})
    store.close()
    path = max((folder / "db").glob("*.sst"), key=lambda path: path.stat().st_size)
    assert path.stat().st_size > 100_000
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    facts = information(folder, check=True)
    assert "db cannot be read" in str(facts["health"]) or "Corruption" in str(facts["health"])


def test_looking_at_a_folder_makes_no_store(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    with pytest.raises(StateError, match="there is no index"):
        information(tmp_path)
    assert not list((tmp_path / "db").iterdir())
