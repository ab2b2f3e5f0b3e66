"""What the system refuses is no damage: it is said in plain words, and nothing is deleted or taken for lost."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stream_lsh.errors import DamagedError, OutputError, StoreError
from stream_lsh.index.postings.run import Run
from stream_lsh.index.rows.row_file import RowFile, Shape
from stream_lsh.index.store import rocksdb as module
from stream_lsh.index.store.rocksdb import Store
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
