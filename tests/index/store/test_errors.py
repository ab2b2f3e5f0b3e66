"""What the system refuses is no damage, and is said in plain words; files that were lost or cut are noticed."""

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from stream_lsh.embedded.information import information
from stream_lsh.errors import DamagedError, OutputError, StoreError
from stream_lsh.index.index import Index
from stream_lsh.index.postings.run import Run
from stream_lsh.index.rows.row_file import RowFile, Shape
from stream_lsh.index.store import rocksdb as module
from stream_lsh.index.store import seal
from stream_lsh.index.store.rocksdb import TEXTS, Store, name_key, rows_key
from stream_lsh.settings.model import Settings

SHAPE = Shape(Settings())
FEW_FILES = """
import resource, sys
from pathlib import Path
from stream_lsh.errors import DamagedError, StoreError
from stream_lsh.index.store.rocksdb import Store
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
texts = set()
for limit in range(3, 16):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        Store(Path(sys.argv[1]), sync=False).close()
    except DamagedError as error:
        sys.exit(f"taken for damage with {limit}: {error}")
    except StoreError as error:
        texts.add(str(error))
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
assert len(texts) > 2 and all("Too many open files; raise" in text and "ulimit -n" in text for text in texts), texts
store = Store(Path(sys.argv[1]), sync=False)
assert store.named("x") == 1
"""


def refuse(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/somewhere")


def test_too_many_open_files_are_no_damage(tmp_path: Path) -> None:
    """At whichever file the limit is met; RocksDB says so in as many ways, that of its lock's file among them."""
    store = Store(tmp_path / "db", sync=False)
    store.write({b"m/x": b"1"})
    store.close()
    done = subprocess.run([sys.executable, "-c", FEW_FILES, tmp_path / "db"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.ENOSPC, errno.ENOMEM, errno.EIO])
def test_what_the_system_refuses_rocksdb_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:  # fmt: skip
    def refuse_it(path: str, *_: object, **__: object) -> object:
        raise Exception(f"IO error: While open a file for random read: {path}/LOCK: {os.strerror(number)}")

    monkeypatch.setattr(module, "Rdict", refuse_it)  # of a folder without a store yet, nothing else is asked
    with pytest.raises(
        StoreError, match=r"the index in .* cannot be used.*and start again, nothing is damaged"
    ) as info:
        Store(tmp_path / "db")
    assert not isinstance(info.value, DamagedError) and "another process" not in str(info.value)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.EIO])
def test_files_of_postings_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    run = Run.of(np.arange(1, 9, dtype=np.uint64), np.arange(8, dtype=np.uint32), 0, 8)
    run.write(tmp_path / "run-0-1.bin")

    def refuse_it(*_: object, **__: object) -> int:
        raise refuse(number)

    monkeypatch.setattr(os, "open", refuse_it)
    for look in (lambda: Run.open(tmp_path / "run-0-1.bin"), lambda: RowFile(tmp_path / "r", SHAPE, 0)):
        with pytest.raises(StoreError, match="nothing is damaged") as info:
            look()
        assert not isinstance(info.value, DamagedError)


def test_a_missing_or_foreign_file_is_damage(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match=r"run-0-1\.bin is missing; delete the folder"):
        Run.open(tmp_path / "run-0-1.bin")
    (tmp_path / "rows").write_bytes(b"x" * 5000)
    with pytest.raises(DamagedError, match="restore the folder from a backup"):
        RowFile(tmp_path / "rows", SHAPE, 0)
    assert not any(link.resolve() == tmp_path / "rows" for link in Path("/proc/self/fd").glob("*"))


def test_a_write_that_is_refused_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RowFile(tmp_path / "rows", SHAPE, 0)

    def full(*_: object) -> int:
        raise refuse(errno.ENOSPC)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OutputError, match="make room on the disk and start again to go on"):
        file.append(np.zeros((3, SHAPE.width), np.uint64))
    file.close()


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


def test_a_store_that_does_not_close_can_be_opened_again(tmp_path: Path) -> None:
    """RocksDB does not close after a failed write."""

    class Full:
        def close(self) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = Store(tmp_path / "db")
    store.write({name_key("fact"): b"1"})
    store._families["full"] = Full()
    with pytest.raises(OutputError, match="make room on the disk"):
        store.close()
    with closing(Store(tmp_path / "db")) as again:
        assert again.named("fact") == 1
